"""The places that facts name: callers of installed code, operator calls, notebook cells."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from autogradviz.diagnose.finding import CulpritRun
from autogradviz.events import FrameSeen, RecorderLimited, StackSeen, VersionBumped
from autogradviz.support.source_lines_and_libraries import is_installed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis import Analysis, Op, SourceLocation
    from autogradviz.diagnose.fact import Fact


# --- the user's line before a line of an installed package, in facts ------------------------------


def users_lines_first(analysis: Analysis, facts: Sequence[Fact]) -> Iterator[Fact]:
    """Yield facts whose culprit is a line of the user's program, if one called the code.

    The files of a program that is an installed package itself have no other caller.
    """
    for fact in facts:
        culprit = fact.culprit
        caller = _caller(analysis, culprit) if culprit and is_installed(culprit.filename) else None
        if caller is None:
            yield fact
        else:
            called = "This line called installed code, which is where it happens:"
            yield replace(fact, culprit=caller, explanation=(called, culprit, *fact.explanation))


def _caller(analysis: Analysis, line: SourceLocation) -> SourceLocation | None:
    """Return the innermost line outside of installed packages in the first stack with a line."""
    frames = {
        frame_id
        for frame_id, filename, lineno in analysis.log.fields(
            FrameSeen, "frame_id", "filename", "lineno"
        )
        if (filename, lineno) == (line.filename, line.lineno)
    }
    if not frames:
        return None
    for stack_id, frame_ids in analysis.log.fields(StackSeen, "stack_id", "frame_ids"):
        if frames.isdisjoint(frame_ids):
            continue
        inside = False
        for place in analysis.user_stack(stack_id):
            inside = inside or (place.filename, place.lineno) == (line.filename, line.lineno)
            if inside and not is_installed(place.filename):
                return place
    return None


# --- the operator call at fault among all runs of its line, so that a debugger can stop there -----


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


# --- notebook cells in facts: "In [3], line 2" instead of IPython's file names --------------------


def with_cell_names(fact: Fact, cells: dict[str, int]) -> Fact:
    """Return a fact with "In [3], line 2" instead of IPython's file names.

    Args:
        fact: a fact.
        cells: the number of each cell, by file name.
    """
    if not cells:
        return fact
    return replace(
        fact,
        title=_rename(fact.title, cells),
        effect=_rename(fact.effect, cells),
        explanation=[
            _rename(part, cells) if isinstance(part, str) else _relocate(part, cells)
            for part in fact.explanation
        ],
        fix=_rename(fact.fix, cells),
        culprit=_relocate(fact.culprit, cells),
        victim=_relocate(fact.victim, cells),
        others=tuple(filter(None, (_relocate(each, cells) for each in fact.others))),
    )


def _relocate(location: SourceLocation | None, cells: dict[str, int]) -> SourceLocation | None:
    if location is None or location.filename not in cells:
        return location
    return replace(location, cell=cells[location.filename])


def _rename(text: str, cells: dict[str, int]) -> str:
    for filename, cell in cells.items():
        # The path is absolute, relative to the current directory, or a name alone.
        relative = r"(?:[^\s:]*[/\\])?" + re.escape(PurePath(filename).name)
        for name in (re.escape(filename), relative):
            text = re.sub(rf"(?<![\w.-]){name}:(\d+)", rf"In [{cell}], line \1", text)
    return text
