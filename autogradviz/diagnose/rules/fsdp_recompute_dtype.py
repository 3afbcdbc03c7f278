"""FSDP converts the inputs of a module in the forward, and not in its recomputation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.analysis.types import Op
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.diagnose.text_formatting import describe_op, describe_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis, Recomputation, Region, SavedTensor
    from autogradviz.diagnose.evidence.facts import Evidence

    _Readers: TypeAlias = tuple[Op, Op] | tuple[SavedTensor, SavedTensor]

_CONVERSIONS: Final = ("_to_copy", "to")
_FSDP: Final = "torch/distributed/fsdp/"


@rule(
    "fsdp-recompute-dtype",
    mechanism="diverge",
    when=ErrorMessage(),
    group="recomputation raised",
    at_most=1,
    supersedes=(
        "checkpoint-state-changed",
        "checkpoint-different-number",
        "checkpoint-different-metadata",
        "checkpoint-more-saved",
        "checkpoint-not-repeatable",
    ),
)
def fsdp_recompute_dtype(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each region whose recomputation read an input that was not converted."""
    for region in evidence.analysis.regions:
        for again in region.recomputations:
            for conversion in region.ops:
                if _changes_dtype(conversion) and _is_called_by_fsdp(evidence.analysis, conversion):
                    readers = _readers(region, again, conversion)
                    if readers is not None:
                        yield _draft(region, conversion, *readers)


def _readers(region: Region, again: Recomputation, conversion: Op) -> _Readers | None:
    """Return the op or save that read a converted input, and the one of the recomputation."""
    before, after = conversion.inputs[0].dtype, conversion.outputs[0].tensor_id
    for op in region.ops:
        for at, tensor in enumerate(op.inputs):
            if tensor.tensor_id == after and op.seq > conversion.seq:
                for other in again.ops:
                    if _is_same_call(op, other) and other.inputs[at].dtype == before:
                        return op, other
    # The check of saved tensors raises before the op that saves them is complete.
    for saved, resaved in zip(region.saved, again.saved, strict=False):
        if saved.tensor.tensor_id == after and resaved.tensor.dtype == before:
            return saved, resaved
    return None


def _changes_dtype(op: Op) -> bool:
    return (
        op.name in _CONVERSIONS
        and bool(op.inputs and op.outputs)
        and op.inputs[0].dtype != op.outputs[0].dtype
    )


def _is_called_by_fsdp(analysis: Analysis, op: Op) -> bool:
    """Return whether FSDP is the innermost caller that is not a helper or the user's code."""
    user = set(analysis.user_stack(op.stack_id))
    for line in analysis.stack(op.stack_id):
        if line in user:
            return False
        if _FSDP in line.filename.replace("\\", "/"):
            return True
    return False


def _is_same_call(first: Op, second: Op) -> bool:
    return (
        first.overload == second.overload
        and first.location == second.location
        and len(first.inputs) == len(second.inputs)
    )


def _draft(
    region: Region, conversion: Op, forward: Op | SavedTensor, recomputed: Op | SavedTensor
) -> Draft:
    before, after = conversion.inputs[0].dtype, conversion.outputs[0].dtype
    return Draft(
        title=f"FSDP converted an input to {after} in the forward of a checkpoint, and not in its "
        "recomputation",
        culprit=region,
        victim=forward,
        explanation=[
            "This region contains a sharded module:",
            region,
            f"In the forward, FSDP converted its input from {before} to {after}. The recomputation "
            "did not, because it runs within the backward of that module:",
            f"  forward:       {_describe(forward)}",
            f"  recomputation: {_describe(recomputed)}",
            forward,
        ],
        fix="# put the checkpoint inside the sharded module:\n"
        "FullyShardedDataParallel(checkpoint_wrapper(block), mixed_precision=...)\n"
        f"# or convert the input before: checkpoint(block, x.to(torch.{after}), ...)",
        evidence=[conversion, forward, recomputed, region],
    )


def _describe(reader: Op | SavedTensor) -> str:
    """Return "tanh → float32 2×4, net.py:8" or "saves float32 2×4"."""
    if isinstance(reader, Op):
        return describe_op(reader)
    return f"saves {describe_tensor(reader.tensor)}"
