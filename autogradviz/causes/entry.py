"""The entries of an audit: one line of the user's code and what it did to gradients or memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, overload

from autogradviz.causes.answer_cards import card
from autogradviz.diagnose.text_formatting import excerpts, line_text

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import SourceLocation
    from autogradviz.diagnose.fact import Fact
    from autogradviz.diagnose.finding import Confidence, Mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """The effect of one line on gradients, or on memory that they need, by one mechanism.

    Attributes:
        mechanism: see ``Mechanism``.
        location: the line; None if the recording does not show it.
        statement: the source text of the line, "" if it is unknown.
        effect: what it changed, in numbers.
        explanation: how, with other lines concerned.
        confidence: "certain" if recorded events prove line and effect, "likely" if another line
            could be the cause, "hint" if the code may be right as it is.
        parameters: the names of the parameters concerned.
        share: of the elements of all trained parameters, from 0 to 1.
        others: lines that are as good a place for a change.
        events: the sequence numbers of the events that show it.
        fix: the change to make if it is not meant, as code or a comment; "" if unknown.

    Example:
        >>> trace.audit()
        <Audit: nothing that needs a look>
    """

    mechanism: Mechanism
    location: SourceLocation | None
    statement: str
    effect: str
    explanation: str
    confidence: Confidence
    parameters: tuple[str, ...] = ()
    share: float = 0.0
    others: tuple[SourceLocation, ...] = ()
    events: tuple[int, ...] = ()
    fix: str = ""

    def __str__(self) -> str:
        place = line_text(self.location) if self.location is not None else "an unknown line"
        lines = [
            f"{self.mechanism:8s}{place}",
            f"        {self.statement}" if self.statement else "",
        ]
        return "\n".join([*(line for line in lines if line), f"        {self.effect}"])


class Audit(Sequence[AuditEntry]):
    """The entries of a recording, those with the largest effect first.

    It is a sequence. ``print(audit)`` lists the entries, a notebook shows each as a card with its
    source lines.

    Example:
        >>> audit = trace.audit()
        >>> len(audit), audit.to_json()
        (0, '[]')
    """

    def __init__(self, entries: Sequence[AuditEntry]) -> None:
        self._entries = tuple(entries)

    @overload
    def __getitem__(self, index: int) -> AuditEntry: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[AuditEntry, ...]: ...
    def __getitem__(self, index: int | slice) -> AuditEntry | tuple[AuditEntry, ...]:
        return self._entries[index]

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return self._entries == tuple(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def of(self, mechanism: Mechanism) -> tuple[AuditEntry, ...]:
        """Return the entries of one mechanism.

        Example:
            >>> trace.audit().of("cut")
            ()
        """
        return tuple(entry for entry in self._entries if entry.mechanism == mechanism)

    def to_json(self) -> str:
        """Return the entries as JSON, a list of objects with the attributes of ``AuditEntry``.

        Example:
            >>> trace.audit().to_json()
            '[]'
        """
        return json.dumps([asdict(entry) for entry in self._entries], indent=2)

    def __repr__(self) -> str:
        if not self._entries:
            return "<Audit: nothing that needs a look>"
        return "\n".join(str(entry) for entry in self._entries)

    def _repr_html_(self) -> str:
        return (
            "".join(
                card(
                    entry.effect,
                    f"{entry.mechanism}, {entry.confidence}",
                    [("line", entry.location)] if entry.location is not None else [],
                    explanation=entry.explanation,
                    fix=entry.fix,
                )
                for entry in self._entries
            )
            or "<p>Nothing that needs a look.</p>"
        )


def audit_entry(fact: Fact, analysis: Analysis) -> AuditEntry:
    """Return the entry of a fact.

    Args:
        fact: the fact.
        analysis: of the recording, for the names of parameters.
    """
    return AuditEntry(
        mechanism=fact.mechanism,
        location=fact.culprit,
        statement=fact.culprit.text if fact.culprit is not None else "",
        effect=fact.effect,
        explanation="\n".join(excerpts(fact.explanation)),
        confidence=fact.confidence,
        parameters=tuple(analysis.leaf_name(each) for each in fact.parameters),
        share=fact.share,
        others=fact.others,
        events=fact.events,
        fix=fact.fix,
    )
