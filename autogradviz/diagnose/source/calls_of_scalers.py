"""Calls of a loss scaler in the wrong order, moved to where they belong."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from autogradviz.diagnose.source import source_index as source
from autogradviz.support.source_lines_and_libraries import lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation

_UNSCALED_AGAIN = "unscale_() has already been called on this optimizer"
_UNSCALED_LATE = "unscale_() is being called after step()"
_STEPPED_AGAIN = "step() has already been called since the last update()"
_UPDATED_EARLY = "No inf checks were recorded"


def scaler_call_moved(message: str, place: SourceLocation | None) -> str:
    """Return the statements of a scaler in the order that its exception asks for, "" if unknown.

    Args:
        message: of the exception.
        place: the line that raised.
    """
    if _UNSCALED_AGAIN in message:
        return _under_condition_of_step(place) or (
            "scaler.update()  # after each step: unscale_() is called once before it"
        )
    if _UNSCALED_LATE in message:
        return "scaler.unscale_(optimizer)  # before this:\nscaler.step(optimizer)"
    if _STEPPED_AGAIN in message:
        return "scaler.step(optimizer)\nscaler.update()  # after each step"
    if _UPDATED_EARLY in message:
        return "scaler.step(optimizer)  # before this:\nscaler.update()"
    return ""


def _under_condition_of_step(place: SourceLocation | None) -> str:
    """Return a call of ``unscale_`` under the condition of the step below it, with the clipping."""
    if place is None:
        return ""
    for statement in source.simple_statements(place):
        calls = [each for each in _calls(statement) if source.last_name(each.func) == "unscale_"]
        if len(calls) != 1 or not isinstance(calls[0].func, ast.Attribute):
            continue
        scaler = ast.unparse(calls[0].func.value)
        branch = _branch_that_steps(place, scaler)
        if branch is not None:
            between = [
                ast.unparse(each)
                for each in source.nodes_around(place)
                if isinstance(each, (ast.Expr, ast.Assign))
                and statement.lineno < each.lineno < branch.lineno
                and any(source.last_name(call.func).startswith("clip_") for call in _calls(each))
            ]
            step = next(
                ast.unparse(each if getattr(each, "value", None) is call else call)
                for each in branch.body
                for call in _calls(each)
                if ast.unparse(call.func) == f"{scaler}.step"
            )
            lines = [ast.unparse(statement), *between, step]
            return "\n".join([f"if {ast.unparse(branch.test)}:", *(f"    {s}" for s in lines)])
    return ""


def _branch_that_steps(place: SourceLocation, scaler: str) -> ast.If | None:
    """Return the first condition below a line under which the scaler steps, and the line not."""
    for node in source.nodes_around(place):
        if (
            isinstance(node, ast.If)
            and node.lineno > place.lineno
            and place.lineno not in lines_of(node)
            and any(
                ast.unparse(call.func) == f"{scaler}.step"
                for each in node.body
                for call in _calls(each)
            )
        ):
            return node
    return None


def _calls(statement: ast.stmt) -> Iterator[ast.Call]:
    return (each for each in ast.walk(statement) if isinstance(each, ast.Call))
