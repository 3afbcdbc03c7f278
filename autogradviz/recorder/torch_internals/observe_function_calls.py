"""Observe calls of custom Functions: their ``apply`` is replaced and restored."""

from __future__ import annotations

import functools
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
import torch.utils.checkpoint

from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.patches import patched, undo
from autogradviz.recorder.torch_internals.private_api import (
    BackwardCFunction,
    SingleLevelFunction,
    get_sequence_nr,
)
from autogradviz.support.defer_and_redeliver_signals import signal_behind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# NOTE [ Calls of custom Functions ] From PyTorch 2.14 on, ``Function.apply`` is a method of C:
# where the program holds the ``apply`` of its Function, no name is looked up that could be
# replaced. It creates the ``ctx``, then calls the ``forward`` of the Function, in all versions. So
# the creation of a ``ctx`` replaces ``forward`` for the one call that follows, and the replacement
# restores it before anything of the program runs. Before PyTorch 2.13 the node does not exist yet
# when its ``ctx`` is created; when ``forward`` begins it is the newest node. Nothing here refers to
# the ``ctx``: it is the node, and would live longer.


_ABSENT: Final = object()


class FunctionCall(NamedTuple):
    """One call of a custom Function."""

    function: Any
    """The class."""
    sequence_nr: int
    """That of its node."""
    with_gradients: bool
    """Whether the grad mode was enabled."""
    run: Callable[..., Any]
    """Runs its forward."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self) -> Any:
        """Run it."""
        return self.run(*self.args, **self.kwargs)


@contextmanager
def observed_calls(around: Callable[[FunctionCall], Any]) -> Iterator[None]:
    """Call a function with each call of a custom Function, which it runs, while this is open."""
    waiting: dict[int, _Waiting] = {}
    original = BackwardCFunction.__init__

    @skip_frame
    def created(ctx: Any, *args: Any, **kwargs: Any) -> None:
        original(ctx, *args, **kwargs)
        thread = threading.get_ident()
        try:
            if thread in waiting:  # whose call has raised before its forward
                undo(waiting.pop(thread).remove)
            call = _Waiting(ctx, around, waiting)
            if call.replace():
                waiting[thread] = call
        except Exception:  # noqa: BLE001, S110 - a class that refuses changes is not observed
            pass

    try:
        with patched(BackwardCFunction, __init__=created):
            yield
    finally:
        for call in list(waiting.values()):
            undo(call.remove)
        waiting.clear()


class _Waiting:
    """A call whose ``ctx`` exists and whose forward has not begun."""

    def __init__(
        self, ctx: Any, around: Callable[[FunctionCall], Any], waiting: dict[int, _Waiting]
    ) -> None:
        function = self._function = type(ctx)._forward_cls
        self._around = around
        self._waiting = waiting
        self._thread = threading.get_ident()
        self._before = vars(function).get("forward", _ABSENT)
        self._ours: Any = None
        self._enabled = torch.is_grad_enabled()

    def replace(self) -> bool:
        """Replace the forward for the next call of this thread; return whether that succeeded."""
        function = self._function
        original = function.forward
        if hasattr(original, "__autogradviz_waits__"):  # another thread waits for its call
            return False
        takes_ctx = function.setup_context is SingleLevelFunction.setup_context

        @skip_frame
        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            if self._thread != threading.get_ident() or self._ours is None:
                return original(*args, **kwargs)
            number = get_sequence_nr() - 1
            self._waiting.pop(self._thread, None)
            try:
                undo(self.remove)
            except Exception as error:
                if signal_behind(error) is not None:
                    raise
            run = original
            if takes_ctx and args:
                run, args = functools.partial(original, args[0]), args[1:]
            call = FunctionCall(function, number, self._enabled, run, args, kwargs)
            return self._around(call)

        forward.__autogradviz_waits__ = True  # type: ignore[attr-defined]
        function.forward = self._ours = staticmethod(forward)
        return True

    def remove(self) -> None:
        """Restore the forward, and refer to nothing."""
        ours, self._ours = self._ours, None
        if ours is None or vars(self._function).get("forward") is not ours:
            return
        if self._before is _ABSENT:
            del self._function.forward
        else:
            self._function.forward = self._before
