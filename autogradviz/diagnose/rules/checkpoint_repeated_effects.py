"""Silent checkpoint trouble: what a region reads or writes outside itself.

PyTorch checks the shapes of what is recomputed, and the versions of positional tensor arguments.
It does not check parameters, buffers and captured tensors, and it does not undo what the region
wrote: both show in the versions that the log holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.recompute_cause import random_cause
from autogradviz.diagnose.evidence.recompute_diff import (
    first_affected_line,
    may_agree,
    values_agree,
)
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, short, where

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, Recomputation, Region, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


def find_captured_mutations(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding where a tensor read by a region was written before it was read again."""
    for region in evidence.analysis.regions:
        for again in region.recomputations:
            found = evidence.written_after(region, again.started_seq)
            if found is not None and not values_agree(region, again):
                yield _mutated(evidence, region, again, *found)
                return


def _mutated(
    evidence: Evidence,
    region: Region,
    again: Recomputation,
    write: Op,
    read: Op,
) -> Finding:
    name = evidence.shared_name(write, read)
    optimizer = evidence.in_optimizer(write)
    return Finding(
        slug="checkpoint-captured-tensor-mutated",
        title=f"{name or 'A tensor'} changed before the region that reads it was recomputed",
        culprit=write.location,
        victim=read.location or region.location,
        explanation=fit(
            [
                f"The checkpointed region {region.function}{where(region.module)} reads "
                f"{name or 'a tensor that it did not make'} at {short(read.location)}:",
                quoted(region.location),
                f"After its forward, {write.name} wrote it:",
                quoted(write.location),
                "Then the region was recomputed, from the new values: its gradients do not belong "
                "to the loss that was computed. Checkpoint compares the versions of positional "
                "tensor arguments only, so nothing was raised.",
            ]
        ),
        fix=(
            "# call step() only after every backward() through the region"
            if optimizer
            else "# move this write after backward(), or write to a clone"
        ),
        confidence="certain" if write.location is not None else "likely",
        events=(read.seq, write.seq, again.started_seq),
        region_id=region.region_id,
    )


def find_unrestored_random(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding where a region drew other random numbers when it was recomputed."""
    if evidence.analysis.error is not None:
        return
    for region in evidence.analysis.regions:
        for again in region.recomputations[:1]:
            cause = random_cause(evidence, region, again)
            if cause is not None and not values_agree(region, again):
                # Drawn in Python: whether the number reached a tensor shows only in contents.
                unsure = cause.slug == "checkpoint-random-state" and may_agree(region, again)
                yield Finding(
                    slug=cause.slug,
                    title=f"{cause.title}{where(region.module)}",
                    culprit=cause.culprit,
                    victim=first_affected_line(region, again) or cause.victim,
                    explanation=fit(
                        [
                            f"The checkpointed region {region.function}{where(region.module)} "
                            f"({short(region.location)}) drew other random numbers when it was "
                            "recomputed; its gradients belong to those.",
                            *cause.lines,
                            "Shapes are the same, so checkpoint did not notice."
                            + (" record(fingerprints=True) tells whether values differ." * unsure),
                        ]
                    ),
                    fix=cause.fix,
                    confidence="hint" if unsure else cause.confidence,
                    events=(*cause.events, again.started_seq),
                    region_id=region.region_id,
                )
                return


def find_repeated_effects(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding where a region writes what stays, and wrote it again when recomputed."""
    for region in evidence.analysis.regions:
        for again in region.recomputations[:1]:
            twice = {
                storage_id: (before, after)
                for storage_id, (before, after) in evidence.written_twice(region, again).items()
                if not (before.output_hashes and before.output_hashes == after.output_hashes)
            }
            if twice:
                first = min(twice, key=lambda storage_id: evidence.writers[storage_id][0].seq)
                yield _repeated(evidence, region, again, first, *twice[first])
                return


def _reader(region: Region, storage_id: int, write: Op) -> SourceLocation | None:
    """Return where what was written is first read by an operator that autograd follows."""
    reached = {storage_id}
    for op in region.ops:
        if op.seq > write.seq and any(t.storage_id in reached for t in op.inputs):
            if op.sequence_nr is not None and op.location != write.location:
                return op.location
            reached |= {t.storage_id for t in op.outputs if t.storage_id is not None}
    return None


def _harmed_after(region: Region, again: Recomputation, write: Op) -> SourceLocation | None:
    """Return another line that the write does harm to, else the region's last."""
    other = first_affected_line(region, again)
    if other is not None and other != write.location:
        return other
    return region.saved[-1].location if region.saved else region.location


def _repeated(
    evidence: Evidence,
    region: Region,
    again: Recomputation,
    storage_id: int,
    before: Op,
    after: Op,
) -> Finding:
    buffer = storage_id in evidence.buffers
    name = evidence.name_of(storage_id) or ("a buffer" if buffer else "what it did not make")
    return Finding(
        slug="checkpoint-effect-repeated",
        title=f"{name} was updated twice: in forward and again in recomputation",
        culprit=before.location,
        victim=_reader(region, storage_id, before) or _harmed_after(region, again, before),
        explanation=fit(
            [
                f"The checkpointed region {region.function}{where(region.module)} writes {name}:",
                quoted(before.location),
                "A checkpointed region runs twice, and so does everything that it does besides "
                f"computing: {after.name} wrote {name} again when backward recomputed the region.",
                "Gradients are right; running statistics, counters and caches drift.",
            ]
        ),
        fix=(
            "# skip the update while recomputing, for instance for BatchNorm:\n"
            "#   checkpoint everything but the norm layer, or set momentum to 1 - sqrt(1 - m),\n"
            "#   or use a norm without running statistics (GroupNorm, LayerNorm)"
        )
        if buffer
        else "# return the value from the region, and add it up outside",
        confidence="certain" if buffer and before.location is not None else "likely",
        events=(before.seq, again.started_seq, after.seq),
        region_id=region.region_id,
    )
