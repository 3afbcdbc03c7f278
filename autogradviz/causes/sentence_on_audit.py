"""Sentence on the audit of a recording without findings: the lines that cut a gradient path.

The summary in text, the facts of the viewer, its badge and the answers of its search say the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from autogradviz.analysis.formatting import plural, short_location
from autogradviz.causes.order_of_facts import weight
from autogradviz.diagnose.finding_text import join_names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis.types import SourceLocation
    from autogradviz.diagnose.fact import Fact
    from autogradviz.diagnose.finding import Finding


class AuditSentence(NamedTuple):
    """A sentence without a period, and its lines."""

    text: str
    lines: tuple[SourceLocation, ...]


def sentence_on_audit(facts: Iterable[Fact], findings: Iterable[Finding]) -> AuditSentence | None:
    """Return the lines that cut a gradient path with an effect, None if there is a finding.

    Args:
        facts: those of the audit, the largest effect first.
        findings: those of the recording.
    """
    if any(True for _ in findings):
        return None
    cuts = (each for each in facts if each.mechanism == "cut" and _has_effect(each))
    lines = tuple(dict.fromkeys(each.culprit for each in cuts if each.culprit is not None))
    if not lines:
        return None
    verb = "cuts" if len(lines) == 1 else "cut"
    places = join_names([short_location(line) for line in lines])
    return AuditSentence(f"{plural(len(lines), 'line')} {verb} a gradient path ({places})", lines)


def _has_effect(fact: Fact) -> bool:
    return fact.weight > weight("cut without effect", fact.share)
