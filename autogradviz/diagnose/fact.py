"""Facts: what rules and the causal graph say about a recording, in one kind of record.

``diagnose()`` and ``audit()`` are views of one list of facts, and ``why()`` searches it: a
``Finding`` and an ``AuditEntry`` say the same about a line, with the same confidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from autogradviz.diagnose.finding import Confidence, Finding, Mechanism
from autogradviz.diagnose.finding_text import excerpts, paragraphs
from autogradviz.support.source_lines_and_libraries import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis.types import SourceLocation
    from autogradviz.diagnose.finding import Change, CulpritRun


@lru_cache(maxsize=256)
def _is_python(text: str) -> bool:
    try:
        parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One statement about a line of a recording, and the weight of its effect.

    Attributes:
        slug: the kind of problem, "" if it is not one by itself.
        mechanism: see ``Mechanism``.
        effect: one sentence without a period: what the line changed.
        culprit: the line to change; None if the recording does not show it.
        weight: larger is earlier in the audit; see ``causes/order_of_facts.py``.
        explanation: sentences, and source lines of which excerpts are shown.
        confidence: as of findings.
        victim: the line whose result, gradient or backward is wrong; None if unknown.
        parameters: the tensor ids of the parameters concerned.
        share: of the elements of all trained parameters, from 0 to 1.
        others: lines that are as good a place for a change.
        events: the sequence numbers of the events that show it.
        fix: the change to make if it is not meant; "" if unknown. A text that is no Python becomes
            comments if a rule wrote it, and "" otherwise.
        title: of the finding, if a rule says it in other words than ``effect``.
        of_rule: a rule found it, so it is a finding whatever its weight.
        caught: it explains an exception that the program caught.
        nodes: the ids of the autograd nodes concerned, the victim's first.
        region_id: the checkpointed region concerned, if any.
        culprit_run: the operator call at fault on the culprit's line.
        changes: see ``Finding``.
        unchecked: it is a formula that only ``check`` and ``verify`` can judge.
    """

    slug: str = ""
    mechanism: Mechanism
    effect: str
    culprit: SourceLocation | None
    weight: float
    explanation: Sequence[str | SourceLocation | None] = ()
    confidence: Confidence = "hint"
    victim: SourceLocation | None = None
    parameters: tuple[int, ...] = ()
    share: float = 0.0
    others: tuple[SourceLocation, ...] = ()
    events: tuple[int, ...] = ()
    fix: str = ""
    title: str = ""
    of_rule: bool = False
    caught: bool = False
    nodes: tuple[int, ...] = ()
    region_id: int | None = None
    culprit_run: CulpritRun | None = None
    changes: tuple[Change, ...] = ()
    unchecked: bool = False

    def __post_init__(self) -> None:
        if not _is_python(self.fix):
            lines = self.fix.splitlines() if self.of_rule else []
            comments = (line if line.startswith("#") else f"# {line}" for line in lines)
            object.__setattr__(self, "fix", "\n".join(comments))

    def finding(self) -> Finding:
        """Return the fact as a finding."""
        parts = self.explanation
        if not self.of_rule and self.others:
            parts = [*parts, "The other lines concerned:", *self.others[:2]]
        return Finding(
            slug=self.slug,
            title=self.title or self.effect,
            culprit=self.culprit,
            victim=self.victim,
            explanation=paragraphs(excerpts(parts)),
            fix=self.fix or "# nothing, if this is meant",
            confidence=self.confidence,
            events=self.events,
            nodes=self.nodes,
            region_id=self.region_id,
            culprit_run=self.culprit_run,
            changes=self.changes,
            mechanism=self.mechanism,
            caught=self.caught,
        )
