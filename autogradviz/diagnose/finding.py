"""What a diagnosis says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from autogradviz.analysis.types import SourceLocation

Confidence: TypeAlias = Literal["certain", "likely", "hint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause, with its evidence.

    ``certain`` is said only when the recorded events prove it.
    """

    slug: str  # "saved-tensor-mutated"
    title: str
    culprit: SourceLocation | None  # the line to change
    victim: SourceLocation | None  # the line that suffers
    explanation: str  # at most 30 lines
    fix: str  # as code
    confidence: Confidence
    events: tuple[int, ...]  # the event numbers that show it
    nodes: tuple[int, ...] = ()  # the nodes concerned, the suffering one first
    region_id: int | None = None
