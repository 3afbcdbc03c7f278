"""The operator call at fault among all runs of its line, so that a debugger can stop there."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from autogradviz.diagnose.finding import CulpritRun
from autogradviz.events import RecorderLimited, StepEnded, VersionBumped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import Analysis, Op, SourceLocation
    from autogradviz.diagnose.fact import Fact


def add_culprit_runs(analysis: Analysis, facts: Sequence[Fact]) -> list[Fact]:
    """Return facts with the operator call at fault, where one ran on the culprit's line."""
    lines = {each.culprit for each in facts if each.culprit is not None}
    if not lines:
        return list(facts)
    ops: dict[SourceLocation, list[Op]] = defaultdict(list)
    for op in analysis.ops:
        if op.location in lines:
            ops[op.location].append(op)
    steps = _Steps(analysis)
    return [
        each
        if each.culprit is None or each.culprit not in ops
        else replace(each, culprit_run=_run(analysis, each, ops[each.culprit], steps))
        for each in facts
    ]


class _Steps:
    """The step of each event, if the recording lacks its first steps."""

    def __init__(self, analysis: Analysis) -> None:
        dropped = any(e.hook_point == "keep_steps" for e in analysis.log.of(RecorderLimited))
        self._ended = analysis.log.of(StepEnded) if dropped else []
        self._ends = [event.end_seq for event in self._ended]

    def step_of(self, seq: int) -> int | None:
        """Return the step of an event, None if all steps are in the recording."""
        if not self._ended:
            return None
        place = bisect_right(self._ends, seq)
        return self._ended[place].step if place < len(self._ended) else self._ended[-1].step + 1


def _run(analysis: Analysis, fact: Fact, ops: Sequence[Op], steps: _Steps) -> CulpritRun:
    events = {*fact.events}
    writes = {
        each.op_seq
        for each in analysis.log.of(VersionBumped)
        if not events.isdisjoint((each.seq, each.op_seq))
    }
    nodes = {*fact.nodes}
    op = (
        [op for op in ops if op.seq in writes]  # not the save, if both are on one line
        or [op for op in ops if op.seq in events]
        or [op for op in ops if op.node_id in nodes]
        or ops
    )[0]
    step = steps.step_of(op.seq)
    return CulpritRun(
        op=op.overload,
        phase=op.phase,
        step=step,
        count=sum(
            other.seq <= op.seq
            and (other.overload, other.phase, steps.step_of(other.seq))
            == (op.overload, op.phase, step)
            for other in ops
        ),
    )
