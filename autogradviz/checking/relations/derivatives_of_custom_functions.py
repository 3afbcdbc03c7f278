"""The derivatives that the program gives: custom Functions, and operators of ``torch.library``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from autogradviz.checking.formulas.formula_calls import FormulaCalls
from autogradviz.checking.formulas.judge_formula import judge
from autogradviz.checking.relations.repeated_step_and_each_gradient import verified_trace
from autogradviz.checking.result import CheckEntry, CheckItem
from autogradviz.experiments.repeatable_step import NothingToCheckError

if TYPE_CHECKING:
    from autogradviz.checking.formulas.formula_calls import FormulaCall
    from autogradviz.checking.formulas.judge_formula import Judgment
    from autogradviz.checking.result import Outcome
    from autogradviz.diagnose.evidence.gradient_facts_that_failed import FailedFact
    from autogradviz.experiments.repeatable_step import Program


def functions(program: Program) -> CheckEntry:
    """Test the backward of each custom Function and custom operator."""
    calls = FormulaCalls()
    program.check_time(1)
    program.run(calls.observed(), backward=False)
    found = list(calls)
    if not found:
        message = "the step calls no custom Function and no custom operator with a gradient"
        raise NothingToCheckError(message)
    facts: dict[str, FailedFact] = {}
    certificate = verified_trace(program).certificate()
    for fact in (*certificate.changed, *certificate.failed):
        facts.setdefault(fact.node, fact)
    items = [_item(kept, program, facts) for kept in found]
    return _entry(items)


def _item(calls: list[FormulaCall], program: Program, facts: dict[str, FailedFact]) -> CheckItem:
    """Return the answer for one Function or operator: wrong if one of its calls is wrong."""
    judged = [(call, judge(call, program.has_time)) for call in calls]
    order = ("wrong", "right", "cannot tell")
    call, judgment = min(judged, key=lambda each: order.index(each[1].answer))
    fact = facts.get(judgment.node)
    answer, text = judgment.answer, _statement(call, judgment)
    if answer == "wrong" and fact is not None and fact.changed_by:
        answer = "cannot tell"
        text = f"{text}; it may be meant ({fact.changed_by})"
    return CheckItem(
        answer=answer, subject=f"the backward of {call.name}", reason=text,
        location=judgment.backward or call.location, called_at=call.location,
        cause=judgment.node or call.name, is_meant=answer != judgment.answer,
    )  # fmt: skip


def _statement(call: FormulaCall, judgment: Judgment) -> str:
    if judgment.answer == "wrong":
        return (
            f"the backward of {call.name} is not the derivative of its forward: {judgment.reason}"
        )
    return f"{call.name}: {judgment.reason}"


def _entry(items: list[CheckItem]) -> CheckEntry:
    counts = Counter(item.answer for item in items)
    wrong = [item for item in items if item.answer == "wrong"]
    meant = [item for item in items if item.is_meant]
    rest = [item for item in items if item not in (wrong or meant)[:1]]
    outcome: Outcome = "holds" if counts["right"] else "not applied"
    outcome = "fails" if wrong else "differs" if meant else outcome
    first = next(iter(wrong or meant), None)
    text = ", ".join(f"{counts[answer]:,} {answer}" for answer in ("right", "wrong", "cannot tell")
                     if counts[answer])  # fmt: skip
    place = () if first is None or first.called_at is None else (
        f"it is called at {first.called_at}",)  # fmt: skip
    return CheckEntry(
        relation="functions",
        outcome=outcome,
        statement=f"derivatives of {len(items):,} formulas of the program against differences of "
        f"their forwards: {text}"
        if first is None
        else first.reason,
        location=None if first is None else first.location,
        details=(*place, *(f"{item.answer}: {item.reason}" for item in rest)),
        forwards=1,
        items=tuple(items),
    )
