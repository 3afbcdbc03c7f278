"""What a cause is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.finding import Confidence


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason for a region to run differently."""

    slug: str
    title: str  # continues "in h.0.attn: ..."
    culprit: SourceLocation | None
    lines: tuple[str, ...]
    fix: str
    confidence: Confidence
    events: tuple[int, ...]
    victim: SourceLocation | None = None


def confidence_of(cause: Cause | None) -> Confidence:
    """Return how sure a finding is of its line.

    Where it is known what changed and not who changed it, the line is that which suffers: a hint.
    """
    if cause is None:
        return "likely"
    if cause.culprit is None:
        return "hint"
    return "certain" if cause.confidence == "certain" else "likely"
