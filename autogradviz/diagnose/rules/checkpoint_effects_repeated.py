"""Rules: effects in Python and on tensors that a recomputation repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.causes_of_recompute_difference import find_counter_branch
from autogradviz.diagnose.blame.code_run_between_events import RecomputeWindow
from autogradviz.diagnose.blame.find_line_that_changed_state import find_writer
from autogradviz.diagnose.blame.state_paths import attribute_name, base_name
from autogradviz.diagnose.evidence.recompute_value_diff import (
    first_affected_line,
    first_changed_save,
    first_value_mismatch,
)
from autogradviz.diagnose.finding_text import (
    describe_region,
    in_module,
)
from autogradviz.diagnose.rule import Always, Draft, NoError, rule
from autogradviz.events import EffectRepeated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Recomputation, Region, SourceLocation
    from autogradviz.analysis.types import Op
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
    runs = [(each, again) for each in evidence.analysis.regions for again in each.recomputations]
    wrong = any(_is_wrong(evidence, each, again) for each, again in runs)
    right = not wrong and all(again.first_difference is None for _, again in runs)
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
            f"{'Gradients are right; running' if right else 'Running'} statistics, counters and "
            "caches drift.",
        ],
        fix=(
            "# skip the update while recomputing, for instance for BatchNorm:\n"
            "#   checkpoint everything but the norm layer, or set momentum to 1 - sqrt(1 - m),\n"
            "#   or use a norm without running statistics (GroupNorm, LayerNorm)"
        )
        if buffer
        else "# return the value from the region, and add it up outside",
        confidence=None if buffer and not wrong else "likely",
        evidence=(before, recomputation, after),
    )


def _is_wrong(evidence: Evidence, region: Region, again: Recomputation) -> bool:
    """Return whether a recomputation read other inputs, or repeated more than updates."""
    twice = evidence.buffers | evidence.written_in_both_runs
    return (
        any(pair.status == "other_input" for pair in again.pairs)
        or first_value_mismatch(again, excluded=twice) is not None
        or first_changed_save(region, again) is not None
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
