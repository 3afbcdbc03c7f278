"""The line that cleared gradients between two moments of a recording."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.code_run_between import REACHABLE, ExecutionWindow
from autogradviz.diagnose.blame.rank_candidate_lines import LineCandidate, best_line
from autogradviz.diagnose.source import source_index as source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


def gradients_cleared_at(
    evidence: Evidence, first: int | None, last: int | None
) -> SourceLocation | None:
    """Return the line that cleared gradients between two moments, given as stacks."""
    lines = [
        (filename, lineno, function)
        for filename in evidence.user_files
        for lineno, function in _clearing(filename)
    ]
    window = ExecutionWindow(evidence, first, last)
    found = best_line(
        (
            LineCandidate(
                filename, lineno, function, window.ran_in_window(filename, function, lineno)
            )
            for filename, lineno, function in lines
        ),
        at_least=REACHABLE,
    )
    if found is not None or first != last:
        return found
    # Two iterations of a loop: a line before this one in a function that was running.
    running = {
        (place.filename, place.function.replace("<module>", "")): place.lineno
        for place in evidence.analysis.user_stack(first)
    }
    return best_line(
        LineCandidate(filename, lineno, function, 1, (lineno < current, lineno))
        for filename, lineno, function in lines
        if (current := running.get((filename, function), 0))
    )


def _clearing(filename: str) -> Iterator[tuple[int, str]]:
    """Yield line and function of the calls of ``zero_grad``, and of assignments of None to grad."""
    for lineno, function, called in source.calls(filename, ("zero_grad",)):
        if called.endswith("zero_grad"):
            yield lineno, function
    for function, node in source.nodes(filename):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and node.value.value is None
            and any(isinstance(t, ast.Attribute) and t.attr == "grad" for t in node.targets)
        ):
            yield node.lineno, function
