"""The custom Function seam: where it saved its tensors, what it marked, and what else it keeps."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.autograd.function import FunctionCtx

from autogradviz.events import ContextTensorKept, FunctionMarked
from autogradviz.recorder.torch_internals.dynamo import transparent
from autogradviz.recorder.torch_internals.patch import patched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.recorder.recorder import Recorder


_METHODS: Final = ("save_for_backward", "mark_dirty", "mark_non_differentiable")
_NoFunctions: Final = torch._C.DisableTorchFunction  # noqa: SLF001


@contextmanager
def observe_custom_functions(recorder: Recorder) -> Iterator[None]:
    """Note where custom Functions save, and what they mark, while the context is open."""
    originals = {name: getattr(FunctionCtx, name) for name in _METHODS}
    ours = {name: _watched(recorder, name, original) for name, original in originals.items()}
    with patched(FunctionCtx, **ours):
        yield


def _watched(recorder: Recorder, name: str, original: Callable[..., None]) -> Callable[..., None]:
    note = _note_save if name == "save_for_backward" else _tell_mark

    @transparent
    @functools.wraps(original)
    def watched(ctx: Any, *tensors: Any) -> None:
        recorder.guarded("custom functions", note, recorder, name, ctx, tensors)
        original(ctx, *tensors)

    return watched


def _note_save(recorder: Recorder, _name: str, ctx: Any, _tensors: Any) -> None:
    number = getattr(ctx, "_sequence_nr", None)  # functorch's stand-in has none
    if number is not None and recorder.with_stacks:
        recorder.saves.custom[number()] = recorder.stacks.capture(3)


def _tell_mark(recorder: Recorder, name: str, ctx: Any, tensors: tuple[Any, ...]) -> None:
    number = getattr(ctx, "_sequence_nr", None)
    stack_id = recorder.stacks.capture(3) if recorder.with_stacks else None
    with _NoFunctions():
        marked = tuple(recorder.tensors.number(t) for t in tensors if isinstance(t, torch.Tensor))
    function = type(ctx).__name__.removesuffix("Backward")
    sequence_nr = None if number is None else number()
    recorder.emit(FunctionMarked, function, name, sequence_nr, marked, stack_id=stack_id)


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
            ContextTensorKept, node_id, name, recorder.tensors.number(kept),
            askable and kept.grad_fn is node,
            stack_id=recorder.saves.custom.get(node._sequence_nr()),  # noqa: SLF001
        )  # fmt: skip
