"""Branches of a region that depend on a counter."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.rank_candidate_lines import LineCandidate, best_line
from autogradviz.diagnose.source import source_index as source

if TYPE_CHECKING:
    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.blame.code_run_between import RecomputeWindow


def find_counter_branch(window: RecomputeWindow, name: str) -> SourceLocation | None:
    """Return the first branch in a region's code that a counter decides and that computes.

    A branch that only calls a function (logs, saves) changes no result. A comparison with zero
    ("the first time") gives the same answer in every later call.
    """
    return best_line(
        LineCandidate(filename, node.lineno, function, certainty=1)
        for filename in {filename for filename, _ in window.executed}
        for function, node in source.nodes(filename)
        if isinstance(node, (ast.If, ast.IfExp))
        and function
        and window.ran_in_region(filename, function)
        and _tests_count(node.test, name)
        and _computes(node)
    )


def _tests_count(test: ast.expr, name: str) -> bool:
    """Return whether a test takes a remainder of a count, or compares it with a nonzero value."""
    for node in ast.walk(test):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            if _mentions(node.left, name):
                return True
        elif isinstance(node, ast.Compare) and _mentions(node, name):
            others = [part for part in (node.left, *node.comparators) if not _mentions(part, name)]
            if not all(isinstance(part, ast.Constant) and not part.value for part in others):
                return True
    return False


def _computes(node: ast.If | ast.IfExp) -> bool:
    if isinstance(node, ast.IfExp):
        return True
    inner = [part for each in (*node.body, *node.orelse) for part in ast.walk(each)]
    return any(isinstance(part, (ast.Return, ast.Assign, ast.AugAssign)) for part in inner)


def _mentions(node: ast.AST, name: str) -> bool:
    return any(source.is_named(part, name) for part in ast.walk(node))
