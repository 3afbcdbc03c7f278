"""A region computed other values when it was recomputed, with the same shapes.

Needs fingerprints (``record(values=True)``): nothing else tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.causes import find_cause
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.wording import fit, op_words, quoted, short, where
from autogradviz.events import NO_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence import Evidence
    from autogradviz.model import Op, OpPair, Recomputation, Region

_UNINITIALISED = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided")


def find_different_values(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the first region whose recomputation gave other values."""
    if evidence.model.error is not None:
        return
    for region in evidence.model.regions:
        for again in region.recomputations[:1]:
            if evidence.written_after(region, again.started_seq) is not None:
                continue  # told by its own family
            pair = _first_other(again)
            if pair is not None:
                yield _describe(evidence, region, again, pair)
                return


def _first_other(again: Recomputation) -> OpPair | None:
    """Return the first operator that both runs called and that gave other values.

    What only one of them called proves nothing: a selective policy recomputes less, debugging
    and gradients inside the region add operators of their own.
    """
    return next((pair for pair in again.pairs if pair.status == "same" and _differ(pair)), None)


def _differ(pair: OpPair) -> bool:
    first, second = pair.forward, pair.recompute
    if first is None or second is None or first.name in _UNINITIALISED:
        return False
    return any(
        a != b
        for a, b in zip(first.output_hashes, second.output_hashes, strict=False)
        if NO_ID not in {a, b}
    )


def _describe(evidence: Evidence, region: Region, again: Recomputation, pair: OpPair) -> Finding:
    cause = find_cause(evidence, region, again)
    op = pair.forward or pair.recompute
    assert op is not None
    culprit = cause.culprit if cause is not None else None
    return Finding(
        slug="checkpoint-different-values",
        title=f"{region.module or region.function} computed other values when it was recomputed"
        + (f": {cause.title}" if cause is not None else ""),
        culprit=culprit or op.location,
        victim=op.location,
        explanation=fit(
            [
                f"The checkpointed region {region.function}{where(region.module)} "
                f"({short(region.location)}) gave other values the second time, in the same "
                "shapes: its gradients do not belong to the loss that was computed.",
                *(cause.lines if cause is not None else ()),
                f"The first operator to differ: {op_words(op)}",
                quoted(op.location),
                _inputs(pair.forward, pair.recompute),
                "Checkpoint compares shapes, not values, so nothing was raised.",
            ]
        ),
        fix=cause.fix
        if cause is not None
        else "# make the region compute the same at every call, or stop checkpointing it",
        confidence="certain" if cause is not None and cause.confidence == "certain" else "likely",
        events=(op.seq, again.started_seq, *(cause.events if cause is not None else ())),
        region_id=region.region_id,
    )


def _inputs(first: Op | None, second: Op | None) -> str:
    if first is None or second is None:
        return "Only one of the two runs called it."
    if first.input_hashes != second.input_hashes:
        return "Its inputs held other values already: what it reads changed in between."
    return "Its inputs held the same values: the operator itself gave another result."
