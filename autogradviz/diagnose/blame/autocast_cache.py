"""Autocast's cache held a weight's cast when a region ran, and was empty when it ran again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.cause import Cause
from autogradviz.diagnose.evidence.gradient_flow import storages
from autogradviz.diagnose.formatting import short_location
from autogradviz.events import ModeChanged

if TYPE_CHECKING:
    from autogradviz.analysis import Op, Recomputation, Region
    from autogradviz.diagnose.evidence.facts import Evidence

_CAST: Final = "_to_copy"


def find_warm_cast(evidence: Evidence, region: Region, again: Recomputation) -> Cause | None:
    """Return the autocast whose cache made a region's forward leave out a cast."""
    switch = _switch(evidence, region)
    if switch is None or not _cast_anew(evidence, again):
        return None
    casts = {s: op for op in _casts(evidence, switch.seq, region.entered_seq)
             for s in storages(op.outputs)}  # fmt: skip
    reader = next((op for op in region.ops if storages(op.inputs) & casts.keys()), None)
    if reader is None:
        return None
    cast = casts[min(storages(reader.inputs) & casts.keys())]
    culprit = evidence.analysis.location(switch.stack_id)
    return Cause(
        slug="checkpoint-context-missing",
        title="autocast's cache held a weight's cast in forward, and not in recomputation",
        culprit=culprit,
        lines=(
            f"Autocast keeps the casts of weights as long as it is open; it was entered at "
            f"{short_location(culprit)}:",
            f"        {culprit.text if culprit is not None else ''}",
            f"A weight was cast at {short_location(cast.location)} before the region began, so "
            f"its forward took the cast from the cache, at {short_location(reader.location)}. Its "
            "recomputation enters autocast anew, with an empty cache, and casts the weight "
            "itself.",
        ),
        fix="torch.autocast(device_type, dtype=dtype, cache_enabled=False)",
        confidence="likely",
        events=(switch.seq, cast.seq, reader.seq),
        victim=reader.location,
    )


def _switch(evidence: Evidence, region: Region) -> ModeChanged | None:
    """Return the last switch of autocast before a region, None where that put it off."""
    switches = [
        event
        for event in evidence.analysis.log.of(ModeChanged)
        if event.mode == "autocast" and event.seq < region.entered_seq
    ]
    last = switches[-1] if switches else None
    return last if last is not None and last.after != "off" else None


def _cast_anew(evidence: Evidence, again: Recomputation) -> bool:
    """Return whether a recomputation cast what its forward did not."""
    error = evidence.analysis.error
    refused = error is not None and "not found in storage" in error.message
    if refused and error is not None and _CAST in error.message:
        return True
    return any(
        pair.status == "added" and pair.recompute is not None and pair.recompute.name == _CAST
        for pair in again.pairs
    )


def _casts(evidence: Evidence, after: int, before: int) -> list[Op]:
    return [op for op in evidence.analysis.ops if op.name == _CAST and after < op.seq < before]
