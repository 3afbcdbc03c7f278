"""The custom Function seam: where a Function saved its tensors, and what else it keeps."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import FunctionCtx

from autogradviz.events import ContextTensorKept
from autogradviz.recorder.dynamo import transparent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.recorder.recorder import Recorder


@contextmanager
def observe_custom_saves(recorder: Recorder) -> Iterator[None]:
    """Note the line on which custom Functions save, while the context is open."""
    original = FunctionCtx.save_for_backward

    @transparent
    def save_for_backward(ctx: Any, *tensors: torch.Tensor) -> None:
        recorder.guarded("custom functions", _note_save, recorder, ctx)
        original(ctx, *tensors)

    FunctionCtx.save_for_backward = save_for_backward  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        FunctionCtx.save_for_backward = original  # type: ignore[method-assign]


def _note_save(recorder: Recorder, ctx: Any) -> None:
    number = getattr(ctx, "_sequence_nr", None)  # functorch's stand-in has none
    if number is not None and recorder.with_stacks:
        recorder.saves.custom[number()] = recorder.stacks.capture(3)


def look_at_context(recorder: Recorder, node: Any, node_id: int) -> None:
    """Record the tensors that a Function keeps as attributes, past ``save_for_backward``.

    Its node is the ``ctx`` of its forward.
    """
    if getattr(node, "_forward_cls", FunctionCtx).__module__.startswith("torch."):
        return
    for name, kept in vars(node).items():
        # What a module owns lives on anyway.
        if type(kept) is not torch.Tensor or (kept.is_leaf and kept.requires_grad):
            continue
        # The grad_fn of a view whose base was written runs view functions: leave those.
        askable = not (kept._is_view() and kept._version)  # noqa: SLF001
        recorder.emit(
            ContextTensorKept, node_id, f"ctx.{name}", recorder.tensors.number(kept),
            askable and kept.grad_fn is node,
            stack_id=recorder.saves.custom.get(node._sequence_nr()),  # noqa: SLF001
        )  # fmt: skip
