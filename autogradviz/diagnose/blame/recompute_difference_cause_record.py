"""The cause of a recomputation that differs from its forward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.finding import Confidence


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason why the recomputation of a region differed.

    Attributes:
        slug: the kind of finding.
        title: continues "in h.0.attn: ...".
        culprit: the line to change.
        lines: paragraphs of explanation.
        fix: the change to make, as code.
        confidence: how certain the culprit is.
        events: sequence numbers of the events that show it.
        victim: the affected line, None for the first op that differs.
    """

    slug: str
    title: str
    culprit: SourceLocation | None
    lines: tuple[str, ...]
    fix: str
    confidence: Confidence
    events: tuple[int, ...]
    victim: SourceLocation | None = None


def cause_lines(cause: Cause | None) -> tuple[str, ...]:
    """Return the paragraphs of explanation of a cause, none without one."""
    return cause.lines if cause is not None else ()


def with_cause(title: str, cause: Cause | None) -> str:
    """Return a title followed by the cause, if there is one."""
    return f"{title}: {cause.title}" if cause is not None else title


def with_consequence(cause: Cause, subject: str, consequence: str) -> str:
    """Return a sentence: the cause, and what the recomputation of ``subject`` did because of it."""
    about_subject = cause.title.removeprefix("it ")
    if about_subject != cause.title:
        return f"{subject} {about_subject}, so it {consequence}"
    return f"{cause.title}, so {subject} {consequence}"


def confidence_of(cause: Cause | None) -> Confidence:
    """Return the confidence of a finding with this cause.

    If only the change is known, and not the line that made it, the finding is a hint.
    """
    if cause is None:
        return "likely"
    if cause.culprit is None:
        return "hint"
    return "certain" if cause.confidence == "certain" else "likely"
