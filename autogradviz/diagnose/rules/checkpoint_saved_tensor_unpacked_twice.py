"""A checkpointed saved tensor was unpacked twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.evidence.failed_unpack import failed_save
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.events import BackwardStarted, TensorUnpacked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SavedTensor, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "saved-tensors-read-twice",
    mechanism="free",
    when=ErrorMessage(
        "already unpacked once", without="Performing two backward calls that overlap"
    ),
    group="backward raised",
)
def saved_tensors_read_twice(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the line that unpacked a checkpointed tensor a second time."""
    saved, unpack, name, victim = failed_save(evidence)
    early = _early_unpack(evidence, saved) if saved is not None else None
    culprit = early or evidence.raised_at()
    yield Draft(
        title=f"{name} was unpacked twice under checkpoint",
        culprit=culprit,
        victim=victim,
        explanation=[
            "Every read of ctx.saved_tensors, or of a node's _saved_ attribute, unpacks the tensor "
            "again. Without checkpoint that is harmless; checkpoint returns each tensor once.",
            "The second read:" if early is None else "This read came before the node's own:",
            culprit,
            "The tensor was saved here:",
            victim,
        ],
        fix="saved = ctx.saved_tensors  # once, at the start of backward\n# then use `saved`"
        if early is None
        else "# keep the tensor to inspect in forward: watched = result.detach()",
        confidence="certain" if saved is not None else "likely",
        evidence=(saved, unpack, evidence.analysis.error),
        region_id=saved.region_id if saved is not None else None,
    )


def _early_unpack(evidence: Evidence, saved: SavedTensor) -> SourceLocation | None:
    """Return the user line that unpacked the tensor first, so that the node's own unpack failed."""
    log, location = evidence.analysis.log, evidence.analysis.location
    backwards = {location(event.stack_id) for event in log.of(BackwardStarted)}
    if evidence.raised_at() not in backwards:
        return None  # a custom backward that reads twice
    reads = [location(e.stack_id) for e in log.of(TensorUnpacked) if e.saved_id == saved.saved_id]
    return next((read for read in reads if read is not None and read not in backwards), None)
