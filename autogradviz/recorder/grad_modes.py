"""The modes seam: who switched gradients, inference mode or autocast on and off, and where.

All of these are Python classes whose methods throw one switch of the thread's. Each method is
wrapped, and only what a call itself changed is told: custom Functions run with gradients off,
which C++ sees to, before and after.
"""

from __future__ import annotations

import functools
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.autograd.grad_mode import enable_grad, inference_mode, set_grad_enabled

from autogradviz.events import ModeChanged
from autogradviz.recorder.torch_internals.dynamo import transparent
from autogradviz.recorder.torch_internals.patch import patched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.events import Mode
    from autogradviz.recorder.recorder import Recorder

    Switch = tuple[Mode, str | None]
    Read = Callable[[], dict[Switch, str]]

_DEVICES: Final = ("cpu", "cuda")
_USUAL: Final[dict[Switch, str]] = {
    ("grad", None): "on",
    ("inference", None): "off",
    **{("autocast", device): "off" for device in _DEVICES},
    ("autocast_cache", None): "on",
}


def _grad() -> dict[Switch, str]:
    """Return where this thread's switch of gradients stands."""
    return {("grad", None): _word(torch.is_grad_enabled())}


def _modes() -> dict[Switch, str]:
    """Return where this thread's switches stand."""
    found = {**_grad(), ("inference", None): _word(torch.is_inference_mode_enabled())}
    for device in _DEVICES:
        on = torch.is_autocast_enabled(device)
        dtype = str(torch.get_autocast_dtype(device)).removeprefix("torch.") if on else "off"
        found["autocast", device] = dtype
    found["autocast_cache", None] = _word(torch.is_autocast_cache_enabled())
    return found


def _word(on: bool) -> str:  # noqa: FBT001 - what is put into words
    return "on" if on else "off"


# What each call can throw: no_grad throws its switch through set_grad_enabled.
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


def _emit(recorder: Recorder, read: Read, before: dict[Switch, str], depth: int | None) -> None:
    """Record which switches one call threw.

    Args:
        recorder: who records.
        read: tells where they stand.
        before: where they stood before the call.
        depth: frames between here and the line that called; None where none did.
    """
    now = read()
    if before == now:
        return
    with_stack = depth is not None and recorder.with_stacks
    stack_id = recorder.stacks.capture(depth or 0) if with_stack else None
    for mode, after in now.items():
        if before[mode] != after:
            recorder.emit(ModeChanged, *mode, before[mode], after, stack_id=stack_id)


@contextmanager
def observe_modes(recorder: Recorder) -> Iterator[None]:
    """Record switches that are thrown while the context is open."""
    recorder.guarded("modes", _emit, recorder, _modes, _USUAL, None)
    with ExitStack() as installed:
        for owner, name, read in _METHODS:
            ours = _watched(recorder, owner.__dict__[name], read)
            installed.enter_context(patched(owner, **{name: ours}))
        yield


def _watched(recorder: Recorder, original: Callable[..., Any], read: Read) -> Callable[..., Any]:
    @transparent
    def throw(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = recorder.guarded("modes", read)
        try:
            return original(self, *args, **kwargs)
        finally:
            if before is not None:
                recorder.guarded("modes", _emit, recorder, read, before, 3)

    return functools.wraps(original)(throw)
