"""The operator call at fault among all runs of its line, so that a debugger can stop there."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from autogradviz.diagnose.finding import CulpritRun
from autogradviz.events import RecorderLimited, VersionBumped

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
    dropped = any(e.hook_point == "keep_steps" for e in analysis.log.of(RecorderLimited))
    return [
        each
        if each.culprit is None or each.culprit not in ops
        else replace(each, culprit_run=_run(analysis, each, ops[each.culprit], by_step=dropped))
        for each in facts
    ]


def _run(analysis: Analysis, fact: Fact, ops: Sequence[Op], *, by_step: bool) -> CulpritRun:
    """Return the operator call at fault, with its step if the recording lacks its first steps."""

    def step_of(seq: int) -> int | None:
        return analysis.steps.number_at(seq) if by_step else None

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
    step = step_of(op.seq)
    return CulpritRun(
        op=op.overload,
        phase=op.phase,
        step=step,
        count=sum(
            other.seq <= op.seq
            and (other.overload, other.phase, step_of(other.seq)) == (op.overload, op.phase, step)
            for other in ops
        ),
    )
