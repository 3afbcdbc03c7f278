"""Grad mode, inference mode, autocast, and transforms of ``torch.func``."""

from __future__ import annotations

import functools
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.autograd.grad_mode import enable_grad, inference_mode, set_grad_enabled

from autogradviz.events import ModeChanged
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.patches import patched
from autogradviz.recorder.torch_internals.private_api import FUNCTION_TRANSFORMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.recorder.session import Session


# --- transforms of ``torch.func``: what a recording has of the operators inside, and what it lacks


_LIMITS: Final = {
    "_grad_increment_nesting": "torch.func computed gradients: the operators inside are recorded, "
    "but not which of the transform's nodes and saved tensors belong to them, so why() and "
    "certificates cover none of these gradients, and findings only those that are zeros",
    "enter_jvp_nesting": "torch.func computed derivatives in forward mode: the operators "
    "inside are recorded, but no tangents, so findings, why() and certificates cover none of them",
}
"""By the function that begins a transform. What ``vmap`` alone runs is recorded as without it."""


@contextmanager
def observe_transforms(session: Session) -> Iterator[None]:
    """Record which transforms begin while the context is open."""
    with ExitStack() as installed:
        for name in _LIMITS:
            ours = _transform_wrapper(session, name)
            installed.enter_context(patched(FUNCTION_TRANSFORMS, **{name: ours}))
        yield


def _transform_wrapper(session: Session, name: str) -> Callable[..., Any]:
    original, message = getattr(FUNCTION_TRANSFORMS, name), _LIMITS[name]

    @skip_frame
    def begin(*args: Any) -> Any:
        level = original(*args)  # first: the transform ends whatever is raised from here on
        session.guarded("torch.func", session.limit, "torch.func", message, with_stack=True)
        return level

    return begin


# --- grad mode, inference mode and autocast: each change, with its line ---------------------------
#
# Each is a Python context manager that sets thread-local flags. Its methods are wrapped, and only
# the changes that a call itself made are recorded: C++ also disables gradients around custom
# Functions, before and after.


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.events import Mode
    from autogradviz.recorder.session import Session

    Flag = tuple[Mode, str | None]  # the mode, and the device of an autocast mode
    Modes = tuple[Callable[[], Any], Callable[[Any], dict[Flag, str]]]
    """A function that reads modes fast, and one that names what it returned."""

_DEVICES: Final = ("cpu", "cuda")
_DEFAULTS: Final[dict[Flag, str]] = {
    ("grad", None): "on",
    ("inference", None): "off",
    **{("autocast", device): "off" for device in _DEVICES},
    ("autocast_cache", None): "on",
}


def _describe_grad(enabled: bool) -> dict[Flag, str]:  # noqa: FBT001
    """Return the grad mode by name."""
    return {("grad", None): _on_off(enabled)}


def _read_modes() -> tuple[Any, ...]:
    """Return this thread's modes, as PyTorch has them."""
    devices = [
        torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        for device in _DEVICES
    ]
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        *devices,
        torch.is_autocast_cache_enabled(),
    )


def _describe_modes(modes: tuple[Any, ...]) -> dict[Flag, str]:
    """Return the modes by name."""
    grad, inference, *dtypes, cache = modes
    found = {**_describe_grad(grad), ("inference", None): _on_off(inference)}
    for device, dtype in zip(_DEVICES, dtypes, strict=True):
        found["autocast", device] = "off" if dtype is None else str(dtype).removeprefix("torch.")
    found["autocast_cache", None] = _on_off(cache)
    return found


def _on_off(flag: bool) -> str:  # noqa: FBT001
    return "on" if flag else "off"


_GRAD: Final[Modes] = (torch.is_grad_enabled, _describe_grad)
_ALL: Final[Modes] = (_read_modes, _describe_modes)

# The modes that each method can change: no_grad uses set_grad_enabled.
_METHODS: Final = (
    (set_grad_enabled, "__call__", _GRAD),
    (set_grad_enabled, "__enter__", _GRAD),
    (set_grad_enabled, "__exit__", _GRAD),
    (enable_grad, "__enter__", _GRAD),
    (enable_grad, "__exit__", _GRAD),
    (inference_mode, "__enter__", _ALL),
    (inference_mode, "__exit__", _ALL),
    (torch.autocast, "__enter__", _ALL),
    (torch.autocast, "__exit__", _ALL),
)


def _emit_changes(
    session: Session, before: dict[Flag, str], now: dict[Flag, str], *, with_stack: bool = True
) -> None:
    """Record the modes that differ from those before."""
    stack_id = session.stack_id() if with_stack else None
    for mode, after in now.items():
        if before[mode] != after:
            session.emit(ModeChanged, *mode, before[mode], after, stack_id=stack_id)


@contextmanager
def observe_modes(session: Session) -> Iterator[None]:
    """Record mode changes while the context is open."""
    now = _describe_modes(_read_modes())
    session.guarded("modes", _emit_changes, session, _DEFAULTS, now, with_stack=False)
    with ExitStack() as installed:
        installed.enter_context(patched(set_grad_enabled, __init__=_grad_mode_wrapper(session)))
        for owner, name, modes in _METHODS:
            ours = _wrapper(session, owner, name, modes)
            installed.enter_context(patched(owner, **{name: ours}))
        yield


def _wrapper(session: Session, owner: Any, name: str, modes: Modes) -> Callable[..., Any]:
    """Return a method that also records the modes that it changed.

    An exception of a signal handler may end the recording of a change. The block is not entered
    then, and would never be left: the modes must be those before.
    """
    read, describe = modes
    original = owner.__dict__[name]
    leave = owner.__dict__["__exit__"] if name == "__enter__" else None

    def record(before: Any) -> None:
        now = read()
        if now != before:
            session.guarded("modes", _emit_changes, session, describe(before), describe(now))

    @skip_frame
    def change(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = read()
        try:
            result = original(self, *args, **kwargs)
        except BaseException:
            record(before)
            raise
        try:
            record(before)
        except BaseException:
            if leave is not None:
                leave(self, None, None, None)
            raise
        return result

    return functools.wraps(original)(change)


def _grad_mode_wrapper(session: Session) -> Callable[..., Any]:
    """Return ``set_grad_enabled.__init__`` that also records the change.

    Checkpoint calls it twice for each tensor that it packs, where it changes nothing.
    """
    original = set_grad_enabled.__init__

    @skip_frame
    def set_mode(self: Any, mode: bool) -> None:  # noqa: FBT001 - as the original
        before = torch.is_grad_enabled()
        if mode is not before and type(mode) is bool:  # else the original raises
            found = _describe_grad(before), _describe_grad(mode)
            try:
                session.guarded("modes", _emit_changes, session, *found)
            except BaseException:
                if mode:  # ``no_grad`` is being left
                    original(self, mode)
                raise
        original(self, mode)

    return functools.wraps(original)(set_mode)
