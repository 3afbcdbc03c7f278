"""The optimizer seam: where one training step ends and the next begins.

A step ends when an optimizer has stepped. Optimizers that step one after the other, without a
backward between them, end one step together; those that step in hooks, while backward runs, end
it with the backward. Until the first optimizer steps, and in programs that use none, each
outermost backward is a step; it is told of when the next one begins.

NOTE [ Gradients that wait for an optimizer ]
Who accumulates gradients runs several backwards before the first optimizer steps, and they are one
step. What tells them from a program without an optimizer: the gradients of the last backward are
still there as it left them, neither cleared nor zeroed, and some optimizer holds their leaf. An
optimizer may be older than the recording, so the collector is asked for it, once a recording.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from autogradviz.events import StepEnded
from autogradviz.recorder.torch_internals.dynamo import hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from autogradviz.recorder.recorder import Recorder


class StepTable:
    """Counts steps and tells who wants to know."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._by_optimizer = False
        self._in_backward = False
        self._worked = False  # a backward ran since the last step
        self._stepped_inside = False
        self._backward_end: int | None = None
        # See NOTE [ Gradients that wait for an optimizer ]
        self._left: tuple[int, int] | None = None
        self._is_waited_for: bool | None = None
        self.count = 0
        self.listeners: list[Callable[[int], None]] = []
        """Called with the number of the first event after a step."""

    def backward_began(self) -> None:
        """Note that an outermost backward begins."""
        if self._backward_end is not None and not self._by_optimizer and not self._accumulates():
            self._end(self._backward_end)
        self._backward_end = None
        self._in_backward = True

    def backward_ended(self) -> None:
        """Note that it ended."""
        self._in_backward = False
        self._worked = True
        self._backward_end = self._recorder.event_count
        if self._stepped_inside:
            self._stepped_inside = False
            self._end()
        if not self._by_optimizer:
            self._left = self._recorder.leaves.newest_gradient()

    def optimizer_stepped(self) -> None:
        """Note that an optimizer stepped."""
        self._by_optimizer = True
        if self._in_backward:
            self._stepped_inside = True
        elif self._worked:
            self._end()

    def _accumulates(self) -> bool:
        """Return whether the last backward's gradients wait for more before an optimizer steps."""
        if self._left is None or self._left != self._recorder.leaves.newest_gradient():
            return False
        if self._is_waited_for is None:
            leaf = self._recorder.leaves.newest()
            self._is_waited_for = leaf is not None and _is_optimized(leaf)
        return self._is_waited_for

    def _end(self, end_seq: int | None = None) -> None:
        """Tell of a step that ended now, or at an earlier event."""
        self._worked = False
        if end_seq is None:
            end_seq = self._recorder.event_count + 1  # with the event that tells of it
        self._recorder.emit(StepEnded, self.count, end_seq)
        self.count += 1
        for listener in self.listeners:
            listener(end_seq)


def _is_optimized(leaf: torch.Tensor) -> bool:
    """Return whether any optimizer of this process holds a leaf."""
    for found in gc.get_objects():
        if Optimizer in type(found).__mro__:
            for group in vars(found).get("param_groups", ()):
                if any(leaf is parameter for parameter in group["params"]):
                    return True
    return False


_listeners: list[Callable[[], None]] = []


@contextmanager
def hear_optimizers(listener: Callable[[], None]) -> Iterator[None]:
    """Call a function after every ``Optimizer.step`` while the context is open.

    PyTorch holds one hook of ours however many listen: who listens may change in a call.
    """
    handle = register_optimizer_step_post_hook(_stepped) if not _listeners else None
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
        if handle is not None:
            handle.remove()


@hidden
def _stepped(*_: Any) -> None:
    # The newest first: who opened and closes a recording comes after the recording itself.
    for listener in _listeners[::-1]:
        listener()


@contextmanager
def observe_optimizers(recorder: Recorder) -> Iterator[None]:
    """Hear of every optimizer that steps while the context is open."""

    def stepped() -> None:
        if recorder.gate.recorder is not None:
            recorder.guarded("steps", recorder.steps.optimizer_stepped)

    with hear_optimizers(stepped):
        yield
