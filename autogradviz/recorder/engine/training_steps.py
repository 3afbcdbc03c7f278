"""Training steps: where one ends and the next begins.

A step ends when an optimizer has stepped. Optimizers that step one after the other, without a
backward between them, end one step together; those that step in hooks, while backward runs, end it
with the backward. Until the first optimizer steps, and in programs without one, each outermost
backward is a step; its end is recorded when the next one begins.

NOTE [ Gradients that wait for an optimizer ]
A program that accumulates gradients runs several backwards before the first optimizer steps, and
they are one step. It differs from a program without an optimizer in this: the gradients of the last
backward are still as it left them, neither cleared nor zeroed, and some optimizer holds their leaf.
An optimizer may be older than the recording, so the garbage collector's objects are searched for
it, once a recording.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from autogradviz.events import StepEnded
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

    from autogradviz.recorder.engine.loss_and_gradient_norms import GradientTable
    from autogradviz.recorder.session import Session


class StepTable:
    """Counts steps and calls listeners when one has ended."""

    def __init__(self, session: Session, gradients: GradientTable) -> None:
        self._session = session
        self._gradients = gradients
        self._by_optimizer = False
        self._in_backward = False
        self._had_backward = False  # since the last step
        self._stepped_inside = False
        self._backward_end: int | None = None
        # See NOTE [ Gradients that wait for an optimizer ]
        self._left: tuple[int, int] | None = None
        self._is_optimized: bool | None = None
        self.count = 0
        self.listeners: list[Callable[[int], None]] = []
        """Called with the number of the first event after a step."""
        self.ending_listeners: list[Callable[[], None]] = []
        """Called before a step ends, unless its end is recorded later."""

    def backward_began(self) -> None:
        """Note that an outermost backward begins."""
        if self._backward_end is not None and not self._by_optimizer and not self._accumulates():
            self._end(self._backward_end)
        self._backward_end = None
        self._in_backward = True

    def backward_ended(self) -> None:
        """Note that an outermost backward has ended."""
        self._in_backward = False
        self._had_backward = True
        self._backward_end = self._session.event_count
        if self._stepped_inside:
            self._stepped_inside = False
            self._end()
        if not self._by_optimizer:
            self._left = self._gradients.newest_gradient()

    def optimizer_stepped(self) -> None:
        """Note that an optimizer has stepped."""
        self._by_optimizer = True
        if self._in_backward:
            self._stepped_inside = True
        elif self._had_backward:
            self._end()

    def _accumulates(self) -> bool:
        """Return whether the gradients of the last backward wait for more before a step."""
        if self._left is None or self._left != self._gradients.newest_gradient():
            return False
        if self._is_optimized is None:
            leaf = self._gradients.newest_leaf()
            self._is_optimized = leaf is not None and _is_optimized(leaf)
        return self._is_optimized

    def _end(self, end_seq: int | None = None) -> None:
        """Record that a step has ended, now or at an earlier event."""
        self._had_backward = False
        self._session.guarded("leaves", self._gradients.read_losses)
        if end_seq is None:
            for ending in self.ending_listeners:
                self._session.guarded("steps", ending)
            self._session.guarded("leaves", self._gradients.read_sums)
            end_seq = self._session.event_count + 1  # after the event that records it
        self._session.emit(StepEnded, self.count, end_seq, *self._session.take_step())
        self.count += 1
        for listener in self.listeners:
            listener(end_seq)


def _is_optimized(leaf: torch.Tensor) -> bool:
    """Return whether any optimizer of this process holds a leaf."""
    kinds = set(map(id, _with_subclasses(Optimizer)))  # not hashed: a metaclass may define it
    for found in [each for each in gc.get_objects() if id(type(each)) in kinds]:
        for group in vars(found).get("param_groups", ()):
            if any(leaf is parameter for parameter in group["params"]):
                return True
    return False


def _with_subclasses(kind: type) -> list[type]:
    below: list[type] = type.__subclasses__(kind)
    return [kind, *chain.from_iterable(map(_with_subclasses, below))]


_listeners: list[Callable[[], None]] = []


@contextmanager
def optimizer_step_listener(listener: Callable[[], None]) -> Iterator[None]:
    """Call a function after every ``Optimizer.step`` while the context is open.

    PyTorch gets one hook however many listeners there are: a listener may add or remove others.
    """
    handle = register_optimizer_step_post_hook(_stepped) if not _listeners else None
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
        if handle is not None:
            handle.remove()


@skip_dynamo_recursive
def _stepped(*_: Any) -> None:
    # The newest first: a listener that opens and closes recordings comes after the recording's.
    for listener in _listeners[::-1]:
        listener()


@contextmanager
def observe_optimizers(session: Session, steps: StepTable) -> Iterator[None]:
    """Record the steps of optimizers while the context is open."""

    def stepped() -> None:
        session.guarded("steps", steps.optimizer_stepped)

    with optimizer_step_listener(stepped):
        yield
