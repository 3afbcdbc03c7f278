"""The argument ``break_on`` of ``record``: one condition or several, in any of their forms."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, TypeAlias

from autogradviz.breakpoints.stop_condition import StopCondition, parse_condition
from autogradviz.diagnose import CulpritRun, Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

BreakOn: TypeAlias = "str | StopCondition | Finding"
"""One condition: as text, from ``watch``, or the culprit of a finding."""


def read_conditions(
    break_on: BreakOn | Sequence[BreakOn] | None,
    model: torch.nn.Module | None = None,
    *,
    ops: bool = True,
) -> tuple[StopCondition, ...]:
    """Return the conditions of ``record(break_on=...)``.

    Args:
        break_on: one condition or several, or None.
        model: of the recording, to check the names of parameters.
        ops: operators are recorded, which most conditions need.

    Raises:
        TypeError: if one of them is no condition.
        ValueError: if a text describes none, the model has no such parameter, or no operator ran
            on the line of a finding's culprit.
    """
    if break_on is None:
        return ()
    several = break_on if isinstance(break_on, (list, tuple)) else [break_on]
    return tuple(_read_condition(each, model, ops=ops) for each in several)


def _read_condition(break_on: object, model: torch.nn.Module | None, *, ops: bool) -> StopCondition:
    if isinstance(break_on, StopCondition):
        condition = break_on
    elif isinstance(break_on, Finding):
        condition = condition_of(break_on)
    elif isinstance(break_on, str):
        condition = parse_condition(break_on)
    else:
        message = f"break_on takes text, watch(...) or a finding, not {type(break_on).__name__}"
        raise TypeError(message)
    if not (ops or condition.kind in {"module", "node"}):
        message = f"break_on={condition.text!r} needs operators, which ops=False leaves out"
        raise ValueError(message)
    if model is not None and condition.kind == "write" and condition.name:
        _check_name(condition.name, model)
    return condition


def condition_of(finding: Finding) -> StopCondition:
    """Return the condition that the operator at fault in a finding is called again.

    Raises:
        ValueError: if the finding names no line, or no operator ran on it.
    """
    line, run = finding.culprit, finding.culprit_run
    if line is None:
        message = f"the finding {finding.slug!r} names no line to stop at"
        raise ValueError(message)
    if run is None:
        message = (
            f"no operator ran on {line}, the culprit of {finding.slug!r}; stop there with an "
            f"ordinary breakpoint: breakpoint() before the line, or b {line.filename}:{line.lineno}"
        )
        raise ValueError(message)
    return StopCondition(
        kind="op",
        text=f"the culprit of {finding.slug} ({run.op} at {line}{_occasion(run)})",
        name=run.op,
        filename=line.filename,
        lineno=line.lineno,
        source=line.text,
        phase=run.phase,
        step=run.step,
        note=f", the culprit of {finding.slug!r}",
        count=run.count,
    )


def _occasion(run: CulpritRun) -> str:
    step = "" if run.step is None else f", step {run.step}"
    return f"{step}, call {run.count}"


def finding_to_stop_at(findings: Sequence[Finding]) -> Finding:
    """Return the first finding whose culprit is the call of an operator.

    Raises:
        ValueError: if there is none.
    """
    found = next((each for each in findings if each.culprit_run is not None), None)
    if found is not None:
        return found
    if not findings:
        message = "there is no finding in the trace"
        raise ValueError(message)
    condition_of(findings[0])
    raise AssertionError


def _check_name(name: str, model: torch.nn.Module) -> None:
    known = [each for each, _ in model.named_parameters()] + [n for n, _ in model.named_buffers()]
    if name in known or name.partition(".")[2] in known:
        return
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    message = f"{type(model).__name__} has no parameter or buffer {name!r}{hint}"
    raise ValueError(message)
