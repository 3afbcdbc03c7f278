"""``prove``: run a step again with the cause of a finding undone, and see if the symptom is gone.

NOTE [ What proves a line ]
The step runs as it is, which must show the symptom again: an exception, gradients that are absent,
or gradients or state that a run without the cause does not have. Then it runs with one thing done
otherwise at the line of the finding, everything else from the same state. The line is the cause if
the symptom is gone and the step still does what it did: it runs as many backwards, and no parameter
has lost its gradient. So leaving out the ``backward`` itself proves nothing.

What is done otherwise depends on the mechanism of the finding. The narrowest comes first: saved
tensors that do not see a write, while everything else does, prove more than a line left out.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from autogradviz.diagnose.finding import CONFIDENCES
from autogradviz.experiments.follow_or_disable_checkpointing import uncheckpointed
from autogradviz.experiments.outcome_of_run import (
    Outcome,
    gradient_differences,
    is_proportional,
    run_step,
    state_differences,
)
from autogradviz.experiments.proof import Proof, revised
from autogradviz.experiments.repeatable_step import NotApplicableError, Program
from autogradviz.experiments.replace_statement import NotUndoneError, Statement
from autogradviz.experiments.undo_cause import (
    Detached,
    FactorLeftOut,
    FiniteResults,
    FreedGraphsDetached,
    GradientGraphRecorded,
    GradientPassed,
    GradientsCleared,
    GraphKept,
    HooksNotRegistered,
    HookWithoutEffect,
    LeftOut,
    MemoryNotShared,
    StillWrittenError,
    Undo,
    WritesUnseen,
)
from autogradviz.experiments.undo_cause_in_recomputation import (
    NotRecomputed,
    RandomStateOfForward,
    RepeatedAsInForward,
    StateOfForward,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from autogradviz.diagnose.finding import Finding, Mechanism
    from autogradviz.experiments.proof import ProofAnswer


def _any_write(statement: Statement) -> WritesUnseen:
    return WritesUnseen(statement, any_write=True)


_UNDONE: Final[dict[Mechanism, tuple[Callable[[Statement], Undo], ...]]] = {
    "write": (WritesUnseen, _any_write, StateOfForward, MemoryNotShared, LeftOut),
    "cut": (GradientPassed, GradientGraphRecorded, NotRecomputed, LeftOut),
    "drop": (LeftOut,),
    "mix": (GradientsCleared, LeftOut),
    "keep": (Detached, LeftOut),
    "free": (GraphKept, FreedGraphsDetached, Detached),
    "change": (HooksNotRegistered, HookWithoutEffect, FactorLeftOut, WritesUnseen, LeftOut),
    "diverge": (StateOfForward, RandomStateOfForward, RepeatedAsInForward, LeftOut, NotRecomputed),
    "refuse": (GradientPassed, WritesUnseen, LeftOut),
    "order": (LeftOut,),
    "own": (GradientPassed,),
    "value": (FiniteResults,),
}
"""The experiments of each mechanism, the narrowest first."""

_INCONSISTENT: Final = frozenset({"write", "diverge"})
"""Mechanisms by which gradients differ from those of the step's own operators."""
_ANOMALIES: Final = frozenset({"gradients-not-cleared"})
"""Kinds of findings that are hints, and say what is rarely meant: gradients of earlier steps."""
_MAY_BE_MEANT: Final = "it has this effect, which may be meant"
_MOST_NAMES: Final = 3
SECONDS: Final = 30.0
"""The time for one finding."""


def prove(program: Program, finding: Finding, *, seconds: float = SECONDS) -> Proof:
    """Return whether the line of a finding is the cause of its symptom.

    Args:
        program: the step, which is run several times and restored each time.
        finding: of a recording of this step.
        seconds: the time after which no further run begins.
    """
    return _Experiments(program, finding, monotonic() + seconds).answer()


class _Experiments:
    def __init__(self, program: Program, finding: Finding, ends: float) -> None:
        self._program = program
        self._finding = finding
        self._mechanism = finding.mechanism
        self._ends = ends
        self._first = program.forwards
        self._times = 1
        self._baseline = Outcome()
        self._without: Outcome | None = None
        self._is_only_state = False
        """The symptom is state that a recomputation changes, and no gradient."""

    def answer(self) -> Proof:
        """Return the answer."""
        try:
            answer, reason = self._try()
        except NotApplicableError as error:
            answer, reason = "cannot tell", str(error)
        finding = revised(self._finding, answer, reason, is_wrong=self._is_wrong)
        runs = self._program.forwards - self._first
        return Proof(answer=answer, reason=reason, finding=finding, runs=runs)

    @property
    def _is_wrong(self) -> bool:
        if self._baseline.error is not None:
            return True
        is_hint = self._finding.confidence == CONFIDENCES[-1]  # the effect may be meant
        return self._mechanism in _INCONSISTENT and not (self._is_only_state and is_hint)

    def _try(self) -> tuple[ProofAnswer, str]:
        line = self._finding.culprit
        if line is None:
            return "cannot tell", "the finding has no line"
        if self._mechanism not in _UNDONE:
            return "cannot tell", "no experiment undoes causes of this kind"
        statement = Statement(line)
        for times in (1, 2):  # state that a step leaves shows in the next one
            self._times, self._without = times, None
            self._baseline = self._run()
            if self._baseline.error is not None or times == 2:  # noqa: PLR2004
                break
            found = self._of_all(statement)
            if found is not None and found[0] != "cannot tell":
                return found
        return self._of_all(statement) or ("cannot tell", "the line did not run")

    def _of_all(self, statement: Statement) -> tuple[ProofAnswer, str] | None:
        """Return the first proof, else the first reason of the most definite answer."""
        others: list[tuple[ProofAnswer, str]] = []
        for make in _UNDONE[self._mechanism]:
            if monotonic() > self._ends:
                others.append(("cannot tell", "no time left; set seconds="))
                break
            undo = make(statement)
            try:
                found = self._judge(undo, self._run(undo.active()))
            except NotUndoneError as error:
                found = ("cannot tell", str(error))
            if found is None:
                continue
            if found[1].endswith(_MAY_BE_MEANT):
                return found
            if found[0] == "not cured" and not self._is_refuted(undo):
                found = ("cannot tell", found[1])
            if found[0] == "proved" and self._shows_again():
                return found
            if found[0] == "proved":
                found = ("cannot tell", "the step does not do the same when it runs again")
            others.append(found)
        return min(others, key=lambda each: each[0] != "not cured", default=None)

    def _run(self, *contexts: Any) -> Outcome:
        return run_step(self._program, *contexts, times=self._times)

    def _is_refuted(self, undo: Undo) -> bool:
        """Return whether a symptom that stays shows that the line is not its cause."""
        if not undo.is_whole:
            return False
        if self._baseline.error is None:
            return "" in undo.undoes and self._mechanism != "diverge"
        message = str(self._baseline.error)
        if isinstance(undo, WritesUnseen):  # if it wrote a saved tensor, another line may as well
            return not undo.count
        return any(part and part in message for part in undo.undoes)

    def _shows_again(self) -> bool:
        """Return whether the step as it is has its symptom also after an experiment."""
        again = self._run()
        if self._baseline.error is not None:
            return again.raises_like(self._baseline)
        return again.error is None and not gradient_differences(again, self._baseline)

    def _judge(self, undo: Undo, got: Outcome) -> tuple[ProofAnswer, str] | None:
        """Return the answer of one experiment; None if nothing was undone in it."""
        base, how = self._baseline, str(undo)
        if not undo.count or got.error is not None:
            return self._judge_error(got, how) if undo.count else self._without_effect(undo)
        if got.finished < base.finished or got.backwards < base.backwards:
            return "cannot tell", f"{how}, the step runs fewer backwards"
        if base.error is not None:
            return self._judge_cured(undo, got, how)
        if self._mechanism == "diverge":
            return self._judge_recomputation(undo, got, how)
        is_of_value = isinstance(undo, FiniteResults) and not base.is_finite
        return _judge_finite(got, how) if is_of_value else self._judge_silent(undo, got, how)

    def _without_effect(self, undo: Undo) -> tuple[ProofAnswer, str] | None:
        """Judge a run in which there was nothing to undo."""
        if isinstance(undo, FiniteResults):
            is_hint = self._finding.confidence == CONFIDENCES[-1]  # others know the operand
            if self._baseline.is_finite or not undo.runs or not is_hint:
                return None
            return "not cured", f"{undo.line} gives no other values than finite ones"
        is_refuted = isinstance(undo, WritesUnseen) and undo.runs
        if is_refuted and "modified by an inplace operation" in str(self._baseline.error):
            return "not cured", f"{undo.line} writes no tensor that is saved for backward"
        return None

    def _judge_error(self, got: Outcome, how: str) -> tuple[ProofAnswer, str]:
        """Judge a run that raised."""
        if isinstance(got.error, NotUndoneError):
            return "cannot tell", str(got.error)
        kind, base = type(got.error).__name__, self._baseline
        again = got.raises_like(base) or isinstance(got.error, StillWrittenError)
        if again and base.error is not None:
            return "not cured", f"{how}, the step raises the same {type(base.error).__name__}"
        return "cannot tell", f"{how}, the step raises {kind}"

    def _judge_cured(self, undo: Undo, got: Outcome, how: str) -> tuple[ProofAnswer, str]:
        """Judge a run that did not raise, where the step as it is does."""
        base = self._baseline
        if isinstance(undo, Detached):
            kept = self._run(GraphKept(undo.statement, of_all=True).active())
            if set(got.missing()) - set(kept.missing()):
                return "cannot tell", f"{how}, parameters get no gradient"
        given = [name for name in got.all_gradients if got.norm(name)]
        if not got.finished > base.finished and not given:
            return "cannot tell", f"{how}, no backward gives a gradient"
        text = f"{how}, no {type(base.error).__name__} is raised"
        return "proved", f"{text}, and {self._change(given, got)}" if given else text

    def _judge_silent(self, undo: Undo, got: Outcome, how: str) -> tuple[ProofAnswer, str]:
        base = self._baseline
        lost = sorted(set(got.missing()) - set(base.missing()))
        changed = [name for _, name in gradient_differences(got, base)]
        problem = ""
        if lost:
            problem = f"{_names(lost)} {'has' if len(lost) == 1 else 'have'} no gradient any more"
        elif isinstance(undo, LeftOut) and got.values != base.values:
            problem = "the loss is another one"
        elif changed and isinstance(undo, FactorLeftOut) and not is_proportional(got, base):
            problem = "gradients change by other factors"
        if problem:
            return "cannot tell", f"{how}, {problem}"
        given = [name for name in base.missing() if got.norm(name)]
        absent = [name for name in given if not base.has_twin(name)]
        changed = given or changed
        state = state_differences(got, base)
        effect = ""
        if changed:
            effect = f"{how}, {self._change(changed, got)}"
        elif state and self._mechanism in {"drop", "own", "order"}:
            effect = f"{how}, {_names(state)} has another value after the step"
        if self._mechanism == "cut" and undo.statement.is_straight_through():
            absent = []  # its values are those of the step, its gradient is chosen
        if effect and not (absent or self._is_anomaly(got)):
            return "cannot tell", f"{effect}; {_MAY_BE_MEANT}"
        return ("proved", effect) if effect else ("not cured", f"{how}, no gradient changes")

    def _is_anomaly(self, got: Outcome) -> bool:
        """Return whether what an experiment changed was wrong, and not only another value.

        A hint names a line that may mean its effect: another gradient without it says nothing.
        """
        finding = self._finding
        if finding.confidence != CONFIDENCES[-1] or finding.slug in _ANOMALIES:
            return True
        if self._mechanism in _INCONSISTENT:
            return True
        return got.is_finite and not self._baseline.is_finite

    def _judge_recomputation(self, undo: Undo, got: Outcome, how: str) -> tuple[ProofAnswer, str]:
        """Compare with a run without recomputation, of the program and of the experiment."""
        if self._without is None:
            self._without = self._run(uncheckpointed())
        if self._without.error is not None:
            return "cannot tell", "without recomputation, the step raises"
        before = gradient_differences(self._baseline, self._without)
        state = state_differences(self._baseline, self._without)
        if not before and not state:
            return "cannot tell", "the step is the same with and without recomputation"
        without = self._without
        if not undo.keeps_values:
            without = self._run(undo.active(), uncheckpointed())
        after = gradient_differences(got, without)
        if before and not after:
            error, name = before[0]
            return "proved", (
                f"{how}, recomputing changes no gradient; with it, that of {name} is off by "
                f"{min(error, 1e6):.1%}"
            )
        if before:
            error, name = after[0]
            return "not cured", f"{how}, recomputing changes {name} by {min(error, 1e6):.1%}"
        self._is_only_state = True
        left = set(state_differences(got, without)) & set(state)
        if left:
            return "not cured", f"{how}, recomputing still changes {_names(sorted(left))}"
        return "proved", f"{how}, recomputing leaves {_names(state)} as it was"

    def _change(self, names: Sequence[str], got: Outcome) -> str:
        """Return "the gradient of encoder.weight has norm 0.43 instead of 0"."""
        name = max(names, key=lambda each: abs((got.norm(each) or 0) - (self._norm(each) or 0)))
        more = f" (and of {len(names) - 1:,} more)" if len(names) > 1 else ""
        text = f"the gradient of {name}{more} has norm {got.norm(name) or 0.0:.3g}"
        if self._baseline.error is not None:
            return text
        before = self._norm(name)
        was = "there was none" if before is None else f"it was {before:.3g}"
        if before is not None and f"{before:.3g}" == f"{got.norm(name) or 0.0:.3g}":
            return f"the gradient of {name}{more} has other values"
        return f"{text}, where {was}"

    def _norm(self, name: str) -> float | None:
        return self._baseline.norm(name)


def _judge_finite(got: Outcome, how: str) -> tuple[ProofAnswer, str]:
    """Judge a run in which a line gave finite values, where the step has others."""
    if not got.is_finite:
        return "cannot tell", f"{how}, losses and gradients are still not finite"
    return "proved", f"{how}, losses and gradients are finite"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more
