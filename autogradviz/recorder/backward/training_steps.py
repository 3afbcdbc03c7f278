"""Training steps: where one ends and the next begins.

A step ends when an optimizer has stepped. Optimizers that step one after the other, without a
backward between them, end one step together; those that step in hooks, while backward runs, end it
with the backward. Until the first optimizer steps, and in programs without one, each outermost
backward is a step; its end is recorded when the next one begins.

NOTE [ Tensors of an optimizer ]
Which tensors an optimizer updates is recorded with each of its steps, since parameters are replaced
and groups added during a training. This is done after the step, where there is a hook already:
another one before the step would break the graph of a compiled optimizer once more.
A parameter that got a gradient and is in none of the optimizers that have stepped may be in one
that steps later. So all optimizers are searched for it, with the garbage collector's objects, while
the variables of the training live: when the next backward begins.

NOTE [ Gradients that wait for an optimizer ]
A program that accumulates gradients runs several backwards before the first optimizer steps, and
they are one step. It differs from a program without an optimizer in this: the gradients of the last
backward are still as it left them, neither cleared nor zeroed, and some optimizer holds their leaf.
An optimizer may be older than the recording, so the garbage collector's objects are searched for
it, once a recording.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from torch.nn import Parameter
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from autogradviz.events import FrozenTensorsFound, NoOptimizerFound, OptimizerStepped, StepEnded
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_dynamo_recursive
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction
from autogradviz.support.live_objects import live_objects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from collections.abc import Set as AbstractSet

    import torch

    from autogradviz.recorder.backward.loss_and_gradient_norms import GradientTable
    from autogradviz.recorder.engine_interface import TensorIds
    from autogradviz.recorder.session import Session

MAX_SEARCHES: Final = 8  # for optimizers, in a recording: each takes some milliseconds


class StepTable:
    """Counts steps and calls listeners when one has ended."""

    def __init__(self, session: Session, tensors: TensorIds, gradients: GradientTable) -> None:
        self._session = session
        self._intern = tensors.intern
        self._gradients = gradients
        # See NOTE [ Tensors of an optimizer ]
        self._optimized: set[int] = set()  # the known tensors of optimizers
        self._not_optimized: set[int] = set()  # the parameters that no optimizer has
        self._may_search = False
        self._searches = 0
        self._by_optimizer = False
        self._in_backward = False
        self._had_backward = False  # since the last step
        self._stepped_inside = False
        self._backward_end: int | None = None
        # See NOTE [ Gradients that wait for an optimizer ]
        self._left: tuple[int, int] | None = None
        self._is_optimized: bool | None = None
        self.count = 0
        self.optimizer_calls = 0  # calls of ``step`` of optimizers: a step may have several
        self.ended_by = 0  # the ``id`` of the optimizer that ended the last step, 0 without one
        self.on_stepped: Callable[[Optimizer], None] | None = None
        """Called with each optimizer that has stepped."""
        self.listeners: list[Callable[[int], None]] = []
        """Called with the number of the first event after a step."""
        self.ending_listeners: list[Callable[[], None]] = []
        """Called before a step ends, unless its end is recorded later."""

    def backward_began(self) -> None:
        """Note that an outermost backward begins."""
        self._session.guarded("steps", self.find_optimizers)
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

    def optimizer_stepped(self, optimizer: Optimizer) -> None:
        """Record that an optimizer has stepped."""
        self.optimizer_calls += 1
        self._session.guarded("steps", self._emit_stepped, optimizer)
        if self.on_stepped is not None:
            self._session.guarded("memory", self.on_stepped, optimizer)
        self._by_optimizer = True
        if self._in_backward:
            self._stepped_inside = True
        elif self._had_backward:
            self.ended_by = id(optimizer)
            self._end()

    def _emit_stepped(self, optimizer: Optimizer) -> None:
        """Record the tensors of an optimizer; see NOTE [ Tensors of an optimizer ]."""
        with DisableTorchFunction():
            parameters = parameters_of(optimizer)
            tensor_ids = tuple([self._intern(parameter) for parameter in parameters])
            frozen = [at for at, each in enumerate(parameters) if not is_trained(each)]
            plain = [at for at in frozen if not isinstance(parameters[at], Parameter)]
            gradient_count = None
            if self._gradients.may_read():
                gradient_count = sum([each.grad is not None for each in parameters])
        # By position: a detached copy of a parameter has the same id.
        skipped = frozenset(frozen)
        self._optimized.update([e for at, e in enumerate(tensor_ids) if at not in skipped])
        self._may_search = True
        if frozen:
            self._session.emit(
                FrozenTensorsFound,
                tuple([tensor_ids[at] for at in frozen]),
                tuple([tensor_ids[at] for at in plain]),
            )
        self._session.emit(
            OptimizerStepped, type(optimizer).__name__, tensor_ids, gradient_count,
            stack_id=self._session.stack_id(),
        )  # fmt: skip

    def find_optimizers(self) -> None:
        """Record the parameters with a gradient that no optimizer has, if one has stepped."""
        if not self._may_search or self._searches == MAX_SEARCHES:
            return
        self._may_search = False
        found = self._gradients.reached_parameters(self._optimized, self._not_optimized)
        if not found:
            return
        self._searches += 1
        with DisableTorchFunction():
            for optimizer in live_optimizers():
                trained = filter(is_trained, parameters_of(optimizer))
                self._optimized.update(map(self._intern, trained))
        found -= self._optimized
        self._not_optimized |= found
        if found:
            self._session.emit(NoOptimizerFound, tuple(sorted(found)))

    def prune(self, live_leaves: AbstractSet[int]) -> None:
        """Forget tensors that are no live leaves."""
        self._optimized &= live_leaves
        self._not_optimized &= live_leaves

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
    return any(
        leaf is parameter
        for optimizer in live_optimizers()
        for parameter in parameters_of(optimizer)
    )


def live_optimizers() -> list[Optimizer]:
    """Return all optimizers of this process."""
    return live_objects(_with_subclasses(Optimizer))


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """Return the tensors that an optimizer updates."""
    groups = vars(optimizer).get("param_groups", ())
    return [parameter for group in groups for parameter in group["params"]]


def is_trained(tensor: torch.Tensor) -> bool:
    """Return whether an optimizer can update a tensor: it requires a gradient, or has one."""
    return tensor.requires_grad or tensor.grad is not None


def _with_subclasses(kind: type) -> list[type]:
    below: list[type] = type.__subclasses__(kind)
    return [kind, *chain.from_iterable(map(_with_subclasses, below))]


_listeners: list[Callable[[Optimizer], None]] = []


@contextmanager
def optimizer_step_listener(listener: Callable[[Optimizer], None]) -> Iterator[None]:
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
def _stepped(optimizer: Optimizer, *_: Any) -> None:
    # The newest first: a listener that opens and closes recordings comes after the recording's.
    for listener in _listeners[::-1]:
        listener(optimizer)


@contextmanager
def observe_optimizers(session: Session, steps: StepTable) -> Iterator[None]:
    """Record the steps of optimizers while the context is open."""

    def stepped(optimizer: Optimizer) -> None:
        session.guarded("steps", steps.optimizer_stepped, optimizer)

    with optimizer_step_listener(stepped):
        yield
