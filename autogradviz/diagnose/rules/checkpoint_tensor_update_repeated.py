"""A checkpointed region updates a tensor in place, and its recomputation updated it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.evidence.recompute_value_diff import first_affected_line
from autogradviz.diagnose.rule import Always, Draft, rule
from autogradviz.diagnose.text_formatting import in_module

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, Recomputation, Region, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


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
                yield _draft(evidence, region, recomputation, first, *twice[first])


def _draft(
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
