"""Rules: what ``fully_shard`` does otherwise, or again, in a recomputation."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.analysis.formatting import format_bytes
from autogradviz.analysis.types import Op
from autogradviz.diagnose.finding_text import (
    describe_op,
    describe_tensor,
    join_names,
)
from autogradviz.diagnose.rule import Draft, ErrorMessage, NoError, rule
from autogradviz.events import ParametersUnsharded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis, Recomputation, Region, SavedTensor, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence

    _Readers: TypeAlias = tuple[Op, Op] | tuple[SavedTensor, SavedTensor]


# --- FSDP converts the inputs of a module in the forward, and not in its recomputation ------------


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
                        yield _other_dtype(region, conversion, *readers)


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


def _other_dtype(
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


# --- ``fully_shard`` gathers parameters within a recomputation, where nothing prefetches them -----


@rule("fsdp-recompute-regathers", mechanism="cost", when=NoError(), group="waste", at_most=3)
def fsdp_recompute_regathers(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each checkpoint whose recomputation gathered parameters again."""
    analysis = evidence.analysis
    regions = {region.region_id: region for region in analysis.regions}
    gathered = [
        event
        for event in analysis.log.of(ParametersUnsharded)
        if event.recompute_id is not None and event.region_id in regions
    ]
    # Regions that one line enters, such as those of a loop, are one problem.
    by_line: defaultdict[SourceLocation | None, list[ParametersUnsharded]] = defaultdict(list)
    for event in gathered:
        assert event.region_id is not None
        by_line[regions[event.region_id].location].append(event)
    for events in by_line.values():
        assert events[0].region_id is not None
        region = regions[events[0].region_id]
        names = list(dict.fromkeys(name for e in events for name in e.unsharded_parameters))
        nbytes = sum(event.unsharded_nbytes for event in events)
        yield Draft(
            title=f"{_count(names)} gathered again inside a recomputation: {format_bytes(nbytes)}",
            culprit=region,
            victim=None,
            explanation=[
                "This region was computed again in backward:",
                region,
                f"Its recomputations gathered {join_names(names)} from all ranks, "
                f"{format_bytes(nbytes)} in {len(events):,} gather{'s' * (len(events) > 1)}. "
                "Nothing prefetches parameters there, so the recomputation waits for them.",
            ],
            fix="# checkpoint each sharded module by itself, or\n"
            "fully_shard(module, reshard_after_forward=False)",
            evidence=[region, *events],
            confidence="hint",
        )


def _count(names: list[str]) -> str:
    return f"{names[0]} was" if len(names) == 1 else f"{len(names):,} parameters were"
