"""The custom Function seam: the line on which a Function saved its tensors."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch.autograd.function import FunctionCtx

from autogradviz.recorder.dynamo import transparent

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

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
