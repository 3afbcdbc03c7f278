"""The result of ``check``: one entry for each relation."""

from __future__ import annotations

import html
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from autogradviz.analysis.formatting import plural, short_location
from autogradviz.diagnose.finding_text import join_names, place_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis.types import SourceLocation
    from autogradviz.experiments.proof import Proof
    from autogradviz.trace import Trace

RelationName: TypeAlias = Literal[
    "repeatable", "certificate", "derivative", "functions", "checkpoint", "hooks", "precision",
    "compiled", "samples", "micro-batches", "parameters",
]  # fmt: skip
RELATIONS: Final[tuple[RelationName, ...]] = get_args(RelationName)
"""The relations, in the order in which they are tried."""

Answer: TypeAlias = Literal["right", "wrong", "cannot tell"]
"""The three answers to: is this gradient right?"""

Outcome: TypeAlias = Literal["holds", "fails", "differs", "not applied"]
"""``fails``: a gradient is wrong. ``differs``: the relation does not hold, as it must be if the
program means to change or cut a gradient there. ``not applied``: the reason is in ``statement``."""

_ANSWERS: Final[dict[Outcome, Answer]] = {
    "holds": "right", "fails": "wrong", "differs": "cannot tell", "not applied": "cannot tell",
}  # fmt: skip
NO_GRAPH: Final = "the loss has no graph"
"""The statement of relations that hold only because nothing has a gradient."""
_MARKS: Final = {"holds": "ok", "fails": "FAIL", "differs": "look", "not applied": "-"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckItem:
    """One of three answers about one thing that was checked.

    Attributes:
        answer: "right", "wrong" or "cannot tell".
        subject: the relation, "the backward of Square", "SquareBackward" …
        reason: one sentence: what was compared, how it differs, or why it is unknown.
        location: the line concerned; None if unknown.
        relations: the relations that give this answer.
        called_at: the line that calls a Function or operator.
        cause: items about the same thing have the same cause, the name of an autograd node; "" if
            it is unknown.
        is_meant: whether the program may mean to change a gradient there.
        parameters: names of parameters that get a wrong gradient from there, the first ones.

    Example:
        >>> step = lambda: model(x).sum()
        >>> [item] = autogradviz.check(step, model, relations=["repeatable"]).items
        >>> print(item)
        right: two runs have the same gradients, ...
    """

    answer: Answer
    subject: str
    reason: str
    location: SourceLocation | None = None
    relations: tuple[RelationName, ...] = ()
    called_at: SourceLocation | None = None
    cause: str = ""
    is_meant: bool = False
    parameters: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = f"{self.location}: " if self.location is not None else ""
        return f"{self.answer}: {place}{self.reason}"


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
        items: what the relation says about each thing that it checks; empty if it checks one.
        cause: the name of the autograd node where it fails, "" if it is unknown.
        is_absent: it was not applied because the step has nothing of its kind.
        raised: it was not applied because the step raised.

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
    items: tuple[CheckItem, ...] = ()
    cause: str = ""
    is_absent: bool = False
    raised: bool = False

    @property
    def answer(self) -> str | None:
        """The answer of the relation; None if the step has nothing of its kind.

        Example:
            >>> result = autogradviz.check(lambda: model(x).sum(), model, relations=["hooks"])
            >>> print(result["hooks"].answer)
            None
        """
        return None if self.is_absent else _ANSWERS[self.outcome]

    def _own_items(self) -> tuple[CheckItem, ...]:
        if self.is_absent or self.items:
            return tuple(replace(item, relations=(self.relation,)) for item in self.items)
        item = CheckItem(
            answer=_ANSWERS[self.outcome], subject=self.relation, reason=self.statement,
            location=self.location, relations=(self.relation,), cause=self.cause,
            is_meant=self.outcome == "differs",
        )  # fmt: skip
        return (item,)

    def __str__(self) -> str:
        place = f"{self.location}: " if self.location is not None else ""
        first = f"{_MARKS[self.outcome]:5s}{self.relation:14s}{place}{self.statement}"
        return "\n".join([first, *(f"{'':19s}{line}" for line in self.details)])


@dataclass(frozen=True, kw_only=True, repr=False)
class CheckResult:
    """The relations that were tried on a training step; true if none fails.

    ``print(result)`` begins with the verdict and lists the relations, a notebook shows them as a
    table. Iterating yields the entries.

    Attributes:
        entries: one for each relation.
        not_restored: what the step may have changed and could not be restored.
        trace: the recording in which gradients were verified, if that relation was tried; it
            opens on the failing line.
        proofs: what experiments say about the findings of the step, with the findings.

    Example:
        >>> result = autogradviz.check(lambda: model(x).sum(), model, relations=["certificate"])
        >>> result.ok
        True
    """

    entries: tuple[CheckEntry, ...]
    not_restored: tuple[str, ...] = ()
    trace: Trace | None = field(default=None, repr=False, compare=False)
    proofs: tuple[Proof, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no relation fails."""
        return not self.failed

    @property
    def failed(self) -> tuple[CheckEntry, ...]:
        """The relations that fail."""
        return tuple(entry for entry in self.entries if entry.outcome == "fails")

    @cached_property
    def items(self) -> tuple[CheckItem, ...]:
        """The answers: one for each thing that was checked, and one for each bug.

        What several relations find wrong at the same node or line is one item. What one relation
        cannot verify and another one can is not counted as unknown.

        Example:
            >>> result = autogradviz.check(lambda: model(x).sum(), model, relations=["certificate"])
            >>> [item.answer for item in result.items]
            ['right']
        """
        return _merged([item for entry in self.entries for item in entry._own_items()])  # noqa: SLF001

    @property
    def counts(self) -> dict[str, int]:
        """The number of answers of each kind.

        Example:
            >>> result = autogradviz.check(lambda: model(x).sum(), model, relations=["certificate"])
            >>> result.counts
            {'right': 1, 'wrong': 0, 'cannot tell': 0}
        """
        answers = [item.answer for item in self.items]
        return {answer: answers.count(answer) for answer in get_args(Answer)}

    @property
    def wrong(self) -> tuple[CheckItem, ...]:
        """The gradients that are wrong, one item for each bug.

        Example:
            >>> result = autogradviz.check(lambda: model(x).sum(), model, relations=["certificate"])
            >>> result.wrong
            ()
        """
        return tuple(item for item in self.items if item.answer == "wrong")

    @property
    def unknown(self) -> tuple[CheckItem, ...]:
        """The items of which ``check`` cannot tell whether they are right, with the reasons.

        Example:
            >>> result = autogradviz.check(lambda: model(x).sum(), model, relations=["certificate"])
            >>> result.unknown
            ()
        """
        return tuple(item for item in self.items if item.answer == "cannot tell")

    def __bool__(self) -> bool:
        return self.ok

    def __iter__(self) -> Iterator[CheckEntry]:
        return iter(self.entries)

    def __getitem__(self, relation: RelationName) -> CheckEntry:
        return next(entry for entry in self.entries if entry.relation == relation)

    def __str__(self) -> str:
        lines = [*self.verdict, *(str(self._with_reference(entry)) for entry in self.entries)]
        lines += self._summary()
        lines += [f"not restored: {each}" for each in self.not_restored]
        return "\n".join(lines)

    __repr__ = __str__

    @property
    def verdict(self) -> tuple[str, ...]:
        """One line for each error: the line of the backward that is wrong, how, and who gets it.

        Without an error, one line that says how much was checked, and whether relations do not
        hold that the program may mean to break; then one with the hints of the recorded step.

        Example:
            >>> result = autogradviz.check(lambda: model(x).sum(), model, relations=["certificate"])
            >>> result.verdict
            ('No gradient is wrong: of 1 thing checked, 1 is right.',)
        """
        if self.wrong:
            return tuple(_verdict(item) for item in self.wrong)
        right, unknown = self.counts["right"], self.counts["cannot tell"]
        if not right and any(entry.statement == NO_GRAPH for entry in self.entries):
            cut = any(e.relation == "derivative" and e.outcome == "differs" for e in self.entries)
            depends = "" if cut else " (it depends on no parameter)"
            return (f"Nothing could be checked: {NO_GRAPH}{depends}",)
        if not right:
            why = next((_reason(item) for item in self.unknown), "no relation applies")
            return (f"Cannot tell whether the gradients are right, nothing was checked: {why}",)
        looks = sum(item.is_meant for item in self.unknown)
        hints = [] if looks else self._hints()
        first = "No gradient is wrong by itself" if hints else "No gradient is wrong"
        if looks:  # the program may mean it, or not
            first = f"{plural(looks, 'result')} need{'s' if looks == 1 else ''} a look"
        rest = f"; check cannot tell about {unknown:,}" if unknown else ""
        checked = plural(right + unknown, "thing")
        return (
            f"{first}: of {checked} checked, {right:,} "
            f"{'is' if right == 1 else 'are'} right{rest}.",
            *hints,
        )

    def _with_reference(self, entry: CheckEntry) -> CheckEntry:
        """Return an entry that points to the verdict, if several relations found its error."""
        found = [e for e in self.wrong if entry.relation in e.relations and e.relations[1:]]
        if entry.outcome != "fails" or not found:
            return entry
        known = any(entry.statement == item.reason for item in found)
        text = "the error above" if known else f"the error above: {entry.statement}"
        return replace(entry, statement=text, location=None)

    def _summary(self) -> list[str]:
        """Return the counts, and the items of which ``check`` cannot tell."""
        counted = {answer: f"{count:,} {answer}" for answer, count in self.counts.items()}
        if len(self.failed) != len(self.wrong):  # one error fails several relations, or one several
            one = "it" if len(self.wrong) == 1 else "them"
            counted["wrong"] += f" ({plural(len(self.failed), 'relation')} found {one})"
        lines = [", ".join(counted.values())]
        subjects: dict[str, list[str]] = {}
        for item in self.unknown:
            subjects.setdefault(_reason(item), []).append(item.subject)
        lines += [f"cannot tell: {', '.join(own)}: {why}" for why, own in subjects.items()]
        lines += [_with_finding(proof) for proof in self.proofs]
        return lines + [each for each in self._hints() if each not in self.verdict]

    def _hints(self) -> list[str]:
        """Return a line with the hints that the recording of the step has."""
        found = self.trace.diagnose() if self.trace is not None else []
        named = [
            f"{each.slug}{f', {short_location(each.culprit)}' if each.culprit is not None else ''}"
            for each in found
            if each.confidence == "hint"
        ]
        return [f"{plural(len(named), 'hint')}: {'; '.join(named)}"] if named else []

    def _repr_html_(self) -> str:
        first = "".join(f"<p><b>{html.escape(line)}</b></p>" for line in self.verdict)
        rows = "".join(_row(self._with_reference(entry)) for entry in self.entries)
        rest = "".join(f"<p>{html.escape(line)}</p>" for line in self._summary())
        rest += "".join(f"<p>Not restored: {html.escape(each)}</p>" for each in self.not_restored)
        return f"{first}<table><tr><th>relation<th>outcome<th>line<th></tr>{rows}</table>{rest}"


def _verdict(item: CheckItem) -> str:
    place = f"{place_text(item.location)}: " if item.location is not None else ""
    reached = f"; it reaches {join_names(item.parameters)}" if item.parameters else ""
    return f"A gradient is wrong: {place}{item.reason}{reached}"


def _reason(item: CheckItem) -> str:
    place = f"{item.location}: " if item.location is not None else ""
    return f"{place}{item.reason}"


def _with_finding(proof: Proof) -> str:
    place = f"{proof.finding.culprit}: " if proof.finding.culprit is not None else ""
    answer = f" the experiment: {proof.reason}" if proof.answer == "cannot tell" else f" {proof}"
    if proof.answer == "cannot tell" and ", the step raises " in proof.reason:
        answer = ""  # which tells about the experiment alone
    return f"{place}{proof.finding.title} ({proof.finding.confidence}).{answer}"


def _merged(items: list[CheckItem]) -> tuple[CheckItem, ...]:
    """Return items with one for each thing: by the node where it is, else by the line."""
    found: list[CheckItem] = []
    for item in items:
        at = next((at for at, known in enumerate(found) if _same(known, item)), None)
        if at is None:
            found.append(item)
            continue
        known = found[at]
        better = max(known, item, key=_weight)
        relations = tuple(dict.fromkeys((*known.relations, *item.relations)))
        named = known.parameters or item.parameters
        found[at] = replace(better, relations=relations, parameters=named)
    return tuple(found)


def _same(first: CheckItem, second: CheckItem) -> bool:
    if first.relations == second.relations:
        return False
    if first.cause and second.cause:
        return first.cause == second.cause
    known = first.location is not None and first.location == second.location
    return known and first.answer == second.answer != "right"


def _weight(item: CheckItem) -> tuple[int, bool]:
    """Return the rank of an answer: wrong before meant, right and unknown."""
    if item.answer == "cannot tell":
        return int(item.is_meant) * 2, False
    return (3 if item.answer == "wrong" else 1), item.called_at is not None


def _row(entry: CheckEntry) -> str:
    place = "" if entry.location is None else str(entry.location)
    text = "<br>".join(html.escape(line) for line in (entry.statement, *entry.details))
    cells = (entry.relation, entry.outcome, html.escape(place), text)
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
