"""Autocast's cache contained a weight's cast in forward, and not in recomputation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.recompute_cause_record import Cause
from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.diagnose.text_formatting import short_location
from autogradviz.events import ModeChanged

if TYPE_CHECKING:
    from autogradviz.analysis import Op
    from autogradviz.diagnose.blame.code_run_between import RecomputeWindow
    from autogradviz.diagnose.evidence.facts import Evidence

_CAST: Final = "_to_copy"


def find_cached_cast(window: RecomputeWindow) -> Cause | None:
    """Return the autocast context whose cache made a region's forward skip a cast."""
    evidence, region = window.evidence, window.region
    entered = _autocast_entered(window)
    if entered is None or not _casts_in_recomputation(window):
        return None
    casts = {
        storage_id: op
        for op in _casts(evidence, entered.seq, region.entered_seq)
        for storage_id in storages(op.outputs)
    }
    reader = next((op for op in region.ops if storages(op.inputs) & casts.keys()), None)
    if reader is None:
        return None
    cast = casts[min(storages(reader.inputs) & casts.keys())]
    culprit = evidence.analysis.location(entered.stack_id)
    return Cause(
        slug="checkpoint-context-missing",
        title="autocast's cache held a weight's cast in forward, and not in recomputation",
        culprit=culprit,
        lines=(
            f"Autocast caches the casts of weights until it is exited; it was entered at "
            f"{short_location(culprit)}:",
            f"        {culprit.text if culprit is not None else ''}",
            f"A weight was cast at {short_location(cast.location)} before the region started, so "
            f"the forward took the cast from the cache, at {short_location(reader.location)}. The "
            "recomputation enters autocast again, with an empty cache, and casts the weight.",
        ),
        fix="torch.autocast(device_type, dtype=dtype, cache_enabled=False)",
        confidence="likely",
        events=(entered.seq, cast.seq, reader.seq),
        victim=reader.location,
    )


def _autocast_entered(window: RecomputeWindow) -> ModeChanged | None:
    """Return the last change of autocast before a region, None if that turned it off."""
    changes = [
        event
        for event in window.evidence.analysis.log.of(ModeChanged)
        if event.mode == "autocast" and event.seq < window.region.entered_seq
    ]
    last = changes[-1] if changes else None
    return last if last is not None and last.after != "off" else None


def _casts_in_recomputation(window: RecomputeWindow) -> bool:
    """Return whether the recomputation ran a cast that the forward did not."""
    error = window.evidence.analysis.error
    refused = error is not None and "not found in storage" in error.message
    if refused and error is not None and _CAST in error.message:
        return True
    return any(
        pair.status == "added" and pair.recompute is not None and pair.recompute.name == _CAST
        for pair in window.recomputation.pairs
    )


def _casts(evidence: Evidence, after: int, before: int) -> list[Op]:
    return [op for op in evidence.analysis.ops if op.name == _CAST and after < op.seq < before]
