"""Whether a number that a region counts decides what the region computes."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from autogradviz.diagnose.source import index as source

if TYPE_CHECKING:
    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.blame.window import RecomputeWindow


def find_decision(between: RecomputeWindow, name: str) -> SourceLocation | None:
    """Return the first test in a region's code that a count decides, and that changes its result.

    A branch that only calls something (logs, saves) decides nothing; neither does "is it the
    first time", which stays the same however often it is asked.
    """
    found = [
        (filename, node.lineno, function)
        for filename in {filename for filename, _ in between.executed}
        for function, owner in source.functions(filename)
        if function and between.inside(filename, function)
        for node in source.own_nodes(owner)
        if isinstance(node, (ast.If, ast.IfExp)) and _counts(node.test, name) and _computes(node)
    ]
    return source.location(*min(found)) if found else None


def _counts(test: ast.expr, name: str) -> bool:
    """Return whether a test takes a remainder of a count, or compares it with other than zero."""
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
