"""The result of ``check``: one entry for each relation."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis.types import SourceLocation
    from autogradviz.trace import Trace

RelationName: TypeAlias = Literal[
    "repeatable", "certificate", "derivative", "functions", "checkpoint", "hooks", "precision",
    "compiled", "samples", "micro-batches", "parameters",
]  # fmt: skip
RELATIONS: Final[tuple[RelationName, ...]] = get_args(RelationName)
"""The relations, in the order in which they are tried."""

Outcome: TypeAlias = Literal["holds", "fails", "differs", "not applied"]
"""``fails``: a gradient is wrong. ``differs``: the relation does not hold, as it must be if the
program means to change or cut a gradient there. ``not applied``: the reason is in ``statement``."""

_MARKS: Final = {"holds": "ok", "fails": "FAIL", "differs": "look", "not applied": "-"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckEntry:
    """One relation, and the first place where it does not hold.

    Attributes:
        relation: "derivative", "checkpoint" …
        outcome: "holds", "fails", "differs" (look whether that is meant) or "not applied".
        statement: one sentence: what was compared, with the tolerance, or why it was not applied.
        location: the first line where the relation does not hold; None if unknown.
        details: more lines: parameters, sizes of errors, further places.
        forwards: the number of forward passes that it took.

    Example:
        >>> step = lambda: model(x).sum()
        >>> [entry] = autogradviz.check(step, model, relations=["repeatable"]).entries
        >>> entry.outcome
        'holds'
    """

    relation: RelationName
    outcome: Outcome
    statement: str
    location: SourceLocation | None = None
    details: tuple[str, ...] = ()
    forwards: int = 0

    def __str__(self) -> str:
        place = f"{self.location}: " if self.location is not None else ""
        first = f"{_MARKS[self.outcome]:5s}{self.relation:14s}{place}{self.statement}"
        return "\n".join([first, *(f"{'':19s}{line}" for line in self.details)])


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The relations that were tried on a training step; true if none fails.

    ``print(result)`` lists them, a notebook shows them as a table. Iterating yields the entries.

    Attributes:
        entries: one for each relation.
        not_restored: what the step may have changed and could not be restored.
        trace: the recording in which gradients were verified, if that relation was tried; it
            opens on the failing line.

    Example:
        >>> result = autogradviz.check(lambda: model(x).sum(), model, relations=["certificate"])
        >>> result.ok
        True
    """

    entries: tuple[CheckEntry, ...]
    not_restored: tuple[str, ...] = ()
    trace: Trace | None = field(default=None, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether no relation fails."""
        return not self.failed

    @property
    def failed(self) -> tuple[CheckEntry, ...]:
        """The relations that fail."""
        return tuple(entry for entry in self.entries if entry.outcome == "fails")

    def __bool__(self) -> bool:
        return self.ok

    def __iter__(self) -> Iterator[CheckEntry]:
        return iter(self.entries)

    def __getitem__(self, relation: RelationName) -> CheckEntry:
        return next(entry for entry in self.entries if entry.relation == relation)

    def __str__(self) -> str:
        lines = [str(entry) for entry in self.entries]
        lines += [f"not restored: {each}" for each in self.not_restored]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(_row(entry) for entry in self.entries)
        rest = "".join(f"<p>Not restored: {html.escape(each)}</p>" for each in self.not_restored)
        return f"<table><tr><th>relation<th>outcome<th>line<th></tr>{rows}</table>{rest}"


def _row(entry: CheckEntry) -> str:
    place = "" if entry.location is None else str(entry.location)
    text = "<br>".join(html.escape(line) for line in (entry.statement, *entry.details))
    cells = (entry.relation, entry.outcome, html.escape(place), text)
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
