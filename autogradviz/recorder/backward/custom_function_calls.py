"""Calls of custom Functions: what they save and mark, and the line that saved it."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.autograd.graph
from torch.autograd.function import FunctionCtx

from autogradviz.events import (
    ContextTensorKept,
    FunctionMarked,
    GradientBuffersOffered,
)
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.nodes import is_trainable_leaf, safe_grad_fn
from autogradviz.recorder.torch_internals.patches import patched
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.recorder.engine_interface import FunctionFacts, TensorIds
    from autogradviz.recorder.session import Session


# NOTE [ Offered buffers ] From PyTorch 2.15 on, ``ctx.input_grad_buffers`` has the sums of the
# gradients that have arrived so far at the inputs of a Function. Its backward may add to them in
# place and return None. The engine offers a buffer only if nothing else refers to its storage, and
# none while a dispatch mode is active. So a recording with the Python engine and operators has
# none. The native engine reads storages without creating their Python objects, which would be such
# references.


_METHODS: Final = ("save_for_backward", "mark_dirty", "mark_non_differentiable")
_BUFFERS: Final = "input_grad_buffers"


class CustomFunctionTable:
    """Records the tensors that custom Functions save and mark."""

    def __init__(self, session: Session, tensors: TensorIds, facts: FunctionFacts) -> None:
        self._session = session
        self._intern = tensors.intern
        self._facts = facts
        self.on_compiled: Callable[[Any, int], None] | None = None
        """Called with each walked node of a compiled region and its id."""

    def on_save(self, ctx: Any) -> None:
        """Remember when ``save_for_backward`` was called, and the line."""
        number = getattr(ctx, "_sequence_nr", None)  # functorch's ctx has none
        if number is None:
            return
        session = self._session
        self._facts.saved(number(), session.event_count - 1, session.stack_id())

    def on_mark(self, name: str, ctx: Any, tensors: tuple[Any, ...]) -> None:
        """Record a call of ``mark_dirty`` or ``mark_non_differentiable``."""
        number = getattr(ctx, "_sequence_nr", None)
        stack_id = self._session.stack_id()
        with DisableTorchFunction():
            marked = tuple(self._intern(t) for t in tensors if isinstance(t, torch.Tensor))
        function = type(ctx).__name__.removesuffix("Backward")
        sequence_nr = None if number is None else number()
        if sequence_nr is not None and name == "mark_dirty":
            self._facts.marked_dirty(sequence_nr, frozenset(marked))
        self._session.emit(FunctionMarked, function, name, sequence_nr, marked, stack_id=stack_id)

    def on_offer(self, buffers: tuple[torch.Tensor | None, ...]) -> None:
        """Record the buffers that the engine offers to the node that runs on this thread."""
        session = self._session
        with DisableTorchFunction():
            offered = tuple([self._intern(each) for each in buffers if each is not None])
        if offered:
            run = session.engine.innermost_run() or (None, None)
            session.emit(GradientBuffersOffered, *run, offered, stack_id=session.stack_id())

    def read_context(self, node: Any, node_id: int) -> None:
        """Record the tensors that a Function keeps as attributes of ``ctx``, which is its node."""
        function = getattr(node, "_forward_cls", FunctionCtx)
        if self.on_compiled is not None and hasattr(function, "_aot_id"):
            self._session.always_guarded("compile", self.on_compiled, node, node_id)
        if function.__module__.startswith("torch."):
            return
        for name, value in vars(node).items():
            # A parameter lives on anyway.
            if type(value) is not torch.Tensor or is_trainable_leaf(value):
                continue
            self._session.emit(
                ContextTensorKept, node_id, name, self._intern(value),
                safe_grad_fn(value) is node,
                stack_id=self._facts.stack_of(node._sequence_nr()),  # noqa: SLF001
            )  # fmt: skip


@contextmanager
def observe_custom_functions(session: Session, functions: CustomFunctionTable) -> Iterator[None]:
    """Record what custom Functions do with their ``ctx`` while the context is open."""
    originals = {name: getattr(FunctionCtx, name) for name in _METHODS}
    ours: dict[str, Any] = {
        name: _wrapper(session, functions, name, each) for name, each in originals.items()
    }
    buffers = vars(FunctionCtx).get(_BUFFERS)
    if buffers is not None and session.with_ops:
        ours[_BUFFERS] = property(_reader(session, functions, buffers), doc=buffers.__doc__)
    with patched(FunctionCtx, **ours):
        yield


def _reader(session: Session, functions: CustomFunctionTable, original: property) -> Any:
    @skip_frame
    def read(ctx: Any) -> Any:
        buffers = original.__get__(ctx)
        session.guarded("custom functions", functions.on_offer, buffers)
        return buffers

    return read


def _wrapper(
    session: Session, functions: CustomFunctionTable, name: str, original: Callable[..., None]
) -> Callable[..., None]:
    def record(ctx: Any, tensors: tuple[Any, ...]) -> None:
        if name == "save_for_backward":
            functions.on_save(ctx)
        else:
            functions.on_mark(name, ctx, tensors)

    @skip_frame
    @functools.wraps(original)
    def call(ctx: Any, *tensors: Any) -> None:
        session.guarded("custom functions", record, ctx, tensors)
        original(ctx, *tensors)

    return call
