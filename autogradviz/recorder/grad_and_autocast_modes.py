"""Grad mode, inference mode and autocast: each change, with its line.

Each is a Python context manager that sets thread-local flags. Its methods are wrapped, and only the
changes that a call itself made are recorded: C++ also disables gradients around custom Functions,
before and after.
"""

from __future__ import annotations

import functools
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.autograd.grad_mode import enable_grad, inference_mode, set_grad_enabled

from autogradviz.events import ModeChanged
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.patch_functions import patched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.events import Mode
    from autogradviz.recorder.session import Session

    Flag = tuple[Mode, str | None]  # the mode, and the device of an autocast mode
    Read = Callable[[], dict[Flag, str]]

_DEVICES: Final = ("cpu", "cuda")
_DEFAULTS: Final[dict[Flag, str]] = {
    ("grad", None): "on",
    ("inference", None): "off",
    **{("autocast", device): "off" for device in _DEVICES},
    ("autocast_cache", None): "on",
}


def _grad() -> dict[Flag, str]:
    """Return this thread's grad mode."""
    return {("grad", None): _on_off(torch.is_grad_enabled())}


def _modes() -> dict[Flag, str]:
    """Return this thread's modes."""
    found = {**_grad(), ("inference", None): _on_off(torch.is_inference_mode_enabled())}
    for device in _DEVICES:
        on = torch.is_autocast_enabled(device)
        dtype = str(torch.get_autocast_dtype(device)).removeprefix("torch.") if on else "off"
        found["autocast", device] = dtype
    found["autocast_cache", None] = _on_off(torch.is_autocast_cache_enabled())
    return found


def _on_off(flag: bool) -> str:  # noqa: FBT001
    return "on" if flag else "off"


# The modes that each method can change: no_grad uses set_grad_enabled.
_METHODS: Final = (
    (set_grad_enabled, "__init__", _grad),
    (set_grad_enabled, "__call__", _grad),
    (set_grad_enabled, "__enter__", _grad),
    (set_grad_enabled, "__exit__", _grad),
    (enable_grad, "__enter__", _grad),
    (enable_grad, "__exit__", _grad),
    (inference_mode, "__enter__", _modes),
    (inference_mode, "__exit__", _modes),
    (torch.autocast, "__enter__", _modes),
    (torch.autocast, "__exit__", _modes),
)


def _emit_changes(
    session: Session, read: Read, before: dict[Flag, str], *, with_stack: bool = True
) -> None:
    """Record the modes that differ from those before."""
    now = read()
    if before == now:
        return
    stack_id = session.stack_id() if with_stack else None
    for mode, after in now.items():
        if before[mode] != after:
            session.emit(ModeChanged, *mode, before[mode], after, stack_id=stack_id)


@contextmanager
def observe_modes(session: Session) -> Iterator[None]:
    """Record mode changes while the context is open."""
    session.guarded("modes", _emit_changes, session, _modes, _DEFAULTS, with_stack=False)
    with ExitStack() as installed:
        for owner, name, read in _METHODS:
            ours = _wrapper(session, owner.__dict__[name], read)
            installed.enter_context(patched(owner, **{name: ours}))
        yield


def _wrapper(session: Session, original: Callable[..., Any], read: Read) -> Callable[..., Any]:
    @skip_frame
    def change(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = session.guarded("modes", read)
        try:
            return original(self, *args, **kwargs)
        finally:
            if before is not None:
                session.guarded("modes", _emit_changes, session, read, before)

    return functools.wraps(original)(change)
