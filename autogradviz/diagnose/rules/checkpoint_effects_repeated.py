"""Rules: effects that a recomputation repeats, and what ``fully_shard`` does again for it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.analysis.formatting import format_bytes
from autogradviz.analysis.types import Op
from autogradviz.diagnose.blame.candidate_lines_for_state_change import (
    RecomputeWindow,
    attribute_name,
    base_name,
)
from autogradviz.diagnose.blame.causes_of_recompute_difference import find_counter_branch
from autogradviz.diagnose.blame.find_line_that_changed_state import find_writer
from autogradviz.diagnose.evidence.recompute_value_diff import first_affected_line
from autogradviz.diagnose.finding_text import (
    describe_op,
    describe_region,
    describe_tensor,
    in_module,
    join_names,
)
from autogradviz.diagnose.rule import Always, Draft, ErrorMessage, NoError, rule
from autogradviz.events import EffectRepeated, ParametersUnsharded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Recomputation, Region, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence


# --- side effects in Python that recomputation repeats: a list that grows, a counter --------------


@rule(
    "checkpoint-effect-repeated",
    mechanism="diverge",
    when=NoError(),
    group="region",
    after="gradient-counted-twice",
    only_new_lines=True,
)
def checkpoint_side_effects(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first container that grew twice, or number that changed twice."""
    runs = {
        again.recompute_id: (region, again)
        for region in evidence.analysis.regions
        for again in region.recomputations
    }
    for event in evidence.analysis.log.of(EffectRepeated):
        found = runs.get(event.recompute_id) if event.recompute_id is not None else None
        if found is not None and _accumulates(event):
            yield _python_effect(evidence, *found, event)


def _accumulates(event: EffectRepeated) -> bool:
    """Return whether a container grew or a number changed; equal assignments are harmless."""
    before, after = event.before_number, event.after_number
    if before is None or after is None:
        return False
    grew = event.value_kind == "container" and event.change_kind == "size" and after > before
    return grew or (event.value_kind == "plain" and event.change_kind == "value")


def _python_effect(
    evidence: Evidence, region: Region, again: Recomputation, event: EffectRepeated
) -> Draft:
    name = base_name(event.state_path)
    window = RecomputeWindow(evidence, region, again)
    culprit = (
        evidence.analysis.location(event.stack_id)
        if event.stack_id is not None
        else find_writer(window, event, in_forward=True)
    )
    number = event.value_kind == "plain"
    branch = find_counter_branch(window, attribute_name(event.state_path)) if number else None
    return Draft(
        title=f"{name} was changed twice: in forward and again in recomputation",
        culprit=culprit,
        victim=region.saved[-1] if region.saved else region,
        explanation=[
            f"{describe_region(region)} changes {name}, which outlives it:",
            culprit,
            f"It was {event.before} when the forward started, and {event.after} after backward "
            "had recomputed the region: a checkpointed region runs twice, with all its side "
            "effects.",
            "Gradients may be right; the count or the collection is wrong.",
            "A branch of the region depends on it:" if branch is not None else "",
            branch,
        ],
        fix=f"# count and collect outside the region: return the values that {name} needs\n"
        "# from it, and write it in the caller",
        # A report that no computation reads does no harm.
        confidence="likely" if branch is not None else "hint",
        evidence=(region, again, event),
    )


# --- A checkpointed region updates a tensor in place, and its recomputation updated it again ------


@rule(
    "checkpoint-effect-repeated",
    mechanism="diverge",
    when=Always(),
    group="region",
    after="checkpoint-random-not-restored",
    needs={"ops"},
    only_new_lines=True,
)
def checkpoint_effect_repeated(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each region whose recomputation wrote a lasting tensor again."""
    for region in evidence.analysis.regions:
        for recomputation in region.recomputations[:1]:
            twice = {
                storage_id: (before, after)
                for storage_id, (before, after) in evidence.written_twice(
                    region, recomputation
                ).items()
                if not (before.output_hashes and before.output_hashes == after.output_hashes)
            }
            if twice:
                first = min(twice, key=lambda storage_id: evidence.writers[storage_id][0].seq)
                yield _tensor_update(evidence, region, recomputation, first, *twice[first])


def _tensor_update(
    evidence: Evidence,
    region: Region,
    recomputation: Recomputation,
    storage_id: int,
    before: Op,
    after: Op,
) -> Draft:
    buffer = storage_id in evidence.buffers
    name = evidence.name_of(storage_id) or ("a buffer" if buffer else "a tensor from outside")
    return Draft(
        title=f"{name} was updated twice: in forward and again in recomputation",
        culprit=before,
        victim=_reader(region, storage_id, before) or _affected(region, recomputation, before),
        explanation=[
            f"The checkpointed region {region.function}{in_module(region.module)} writes {name}:",
            before,
            "A checkpointed region runs twice, and so do its side effects: "
            f"{after.name} wrote {name} again when backward recomputed the region.",
            "Gradients are right; running statistics, counters and caches drift.",
        ],
        fix=(
            "# skip the update while recomputing, for instance for BatchNorm:\n"
            "#   checkpoint everything but the norm layer, or set momentum to 1 - sqrt(1 - m),\n"
            "#   or use a norm without running statistics (GroupNorm, LayerNorm)"
        )
        if buffer
        else "# return the value from the region, and add it up outside",
        confidence=None if buffer else "likely",
        evidence=(before, recomputation, after),
    )


def _reader(region: Region, storage_id: int, write: Op) -> SourceLocation | None:
    """Return the first line that reads the written tensor in an operator that makes a node."""
    reached = {storage_id}
    for op in region.ops:
        if op.seq > write.seq and any(t.storage_id in reached for t in op.inputs):
            if op.sequence_nr is not None and op.location != write.location:
                return op.location
            reached |= {t.storage_id for t in op.outputs if t.storage_id is not None}
    return None


def _affected(region: Region, recomputation: Recomputation, write: Op) -> SourceLocation | None:
    """Return another line that the write affects, else the region's last save."""
    other = first_affected_line(region, recomputation)
    if other is not None and other != write.location:
        return other
    return region.saved[-1].location if region.saved else region.location


# --- FSDP converts the inputs of a module in the forward, and not in its recomputation ------------


if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis, Recomputation, Region, SavedTensor
    from autogradviz.diagnose.evidence.evidence import Evidence

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
