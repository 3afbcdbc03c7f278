"""The step twice from the same state, and each gradient by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.align_ops import OpIdentity, first_difference, identify
from autogradviz.checking.result import CheckEntry, CheckItem
from autogradviz.experiments.repeatable_step import (
    NotApplicableError,
    NothingToCheckError,
    largest_difference,
    named,
    tolerance_text,
)
from autogradviz.recording.record_context_manager import record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis.types import SourceLocation
    from autogradviz.causes.certificate_of_verified_gradients import Certificate
    from autogradviz.checking.result import Outcome
    from autogradviz.diagnose.evidence.gradient_facts_that_failed import FailedFact
    from autogradviz.experiments.repeatable_step import Program
    from autogradviz.trace import Trace

_MOST: Final = 5


def repeatable(program: Program) -> CheckEntry:
    """Compare two runs from the same state."""
    first, second = program.first, program.run()
    differences = largest_difference(second.gradients, first.gradients)
    if not differences and _same_loss(first.loss, second.loss):
        text = f"two runs have the same gradients, {tolerance_text(first.gradients)}"
        return CheckEntry(relation="repeatable", outcome="holds", statement=text, forwards=2)
    return CheckEntry(
        relation="repeatable",
        outcome="fails",
        statement="two runs from the same state differ: the step reads state that is not restored, "
        "or an operator is not deterministic",
        location=_first_difference(program),
        details=named(differences) or (f"loss {first.loss} and {second.loss}",),
        forwards=4,
    )


def _same_loss(first: float | None, second: float | None) -> bool:
    if first is None or second is None or first != first or second != second:  # noqa: PLR0124 - NaN
        return True
    return abs(first - second) <= 1e-4 * max(abs(first), abs(second), 1e-12)


def _first_difference(program: Program) -> SourceLocation | None:
    """Return the line of the first op whose results differ between two recorded runs."""
    traces = []
    for _ in range(2):
        recording = record(program.given, fingerprints=True, engine="python")
        trace: list[Trace] = []
        program.run(Opened(recording, trace))
        traces += trace
    return first_line(*traces)


class Opened:
    """A recording that remembers its trace."""

    def __init__(self, recording: record, traces: list[Trace]) -> None:
        self._recording = recording
        self._traces = traces

    def __enter__(self) -> None:
        self._traces.append(self._recording.__enter__())

    def __exit__(self, *error: object) -> None:
        self._recording.__exit__(*error)  # type: ignore[arg-type]


def first_line(before: Trace, after: Trace) -> SourceLocation | None:
    """Return the line of the first op that is another one, or has other outputs."""
    first, second = before.analysis.ops, after.analysis.ops
    at = first_difference(identify(first), identify(second), OpIdentity.agrees)
    if at is None:
        return None
    return (second if at < len(second) else first)[at].location


def verified_trace(program: Program) -> Trace:
    """Return a recording of the step whose gradients were verified; made once."""
    found: Trace | None = program.verified
    if found is None:
        traces: list[Trace] = []
        program.check_time(30)
        program.run(Opened(record(program.given, verify=True), traces))
        found = program.verified = traces[0]
    return found


def certificate(program: Program) -> CheckEntry:
    """Compare each node with the derivative of its op, each edge with its parts, each leaf."""
    found = verified_trace(program).certificate()
    counts = found.checked
    if not sum(counts.values()):
        if not found.unverified:
            message = "no backward ran in the step"
            raise NothingToCheckError(message)
        reasons = ", ".join(dict.fromkeys(each.reason for each in found.unverified))
        message = f"no gradient was verified: {reasons}"
        raise NotApplicableError(message)
    checked = f"{counts['node']:,} nodes, {counts['edge']:,} edges, {counts['leaf']:,} leaves"
    missing = tuple(f"not verified: {each}" for each in found.unverified[:_MOST])
    if missing and found.parameters:
        whole = sum(found.parameters.values())
        missing += (f"verified whole: {whole:,} of {len(found.parameters):,} parameters",)
    changed = tuple(f"changed on purpose: {fact}" for fact in found.changed[:_MOST])
    first = found.first
    outcome: Outcome = "fails" if first is not None else "differs" if changed else "holds"
    statement = f"{checked} verified" if first is None else first.statement
    place = found.changed[0].location if changed else None
    place = place if first is None else first.writer or first.location
    main = CheckItem(
        answer="right" if first is None else "wrong", subject="certificate", reason=statement,
        location=None if first is None else place, cause="" if first is None else first.node,
        parameters=() if first is None else tuple(first.parameters),
    )  # fmt: skip
    return CheckEntry(
        relation="certificate",
        outcome=outcome,
        statement=statement,
        location=place,
        details=(*_more(found.failed), *changed, *missing),
        forwards=2,
        cause=main.cause,
        items=(main, *_unknown(found)),
    )


def _unknown(found: Certificate) -> Iterator[CheckItem]:
    """Yield an item for each name of nodes that were not verified, or may be meant."""
    seen: set[str] = set()
    for fact in found.changed:
        if fact.node not in seen:
            seen.add(fact.node)
            yield CheckItem(
                answer="cannot tell", subject=fact.node, reason=f"{fact.statement}: is it meant?",
                location=fact.location, cause=fact.node, is_meant=True,
            )  # fmt: skip
    for each in found.unverified:
        if each.node not in seen:
            seen.add(each.node)
            yield CheckItem(
                answer="cannot tell", subject=each.node, reason=f"not verified: {each.reason}",
                location=each.location, cause=each.node,
            )  # fmt: skip


def _more(failed: Sequence[FailedFact]) -> tuple[str, ...]:
    if not failed:
        return ()
    first = failed[0]
    lines = [f"it reaches {', '.join(first.parameters[:_MOST])}"] if first.parameters else []
    if first.writer is not None and first.location is not None:
        lines.append(f"the op is at {first.location}")
    others = dict.fromkeys(str(fact) for fact in failed[1:])
    others.pop(str(first), None)
    return (*lines, *(f"then {fact}" for fact in [*others][: _MOST - 1]))
