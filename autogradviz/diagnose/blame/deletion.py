"""Which line let go of an object that only weak references were left to."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source import index as source

if TYPE_CHECKING:
    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.blame.window import RecomputeWindow
    from autogradviz.diagnose.evidence.facts import Evidence

_EMPTIES: Final = frozenset({"pop", "popitem", "clear", "remove", "discard", "popleft"})


def find_deletion(
    evidence: Evidence, between: RecomputeWindow, *, least: int, in_forward: bool = False
) -> SourceLocation | None:
    """Return the line that gave something up in a region's run, or between its two runs.

    Args:
        evidence: what was recorded.
        between: where the two runs passed.
        least: how surely the line must have run, as ``between`` weighs it.
        in_forward: whether the region's own forward did it.
    """
    found = [
        (-ran, method, filename, line, function)
        for filename in evidence.user_files
        for line, function, method in _dropped(filename)
        if (ran := between.inside(filename, function) if in_forward
            else between.outside(filename, function, line)) >= least
    ]  # fmt: skip
    return source.location(*min(found)[2:]) if found else None


def _dropped(filename: str) -> list[tuple[int, str, bool]]:
    """Return line and function of what gives a name up, or (True) takes from a container."""
    return [
        (node.lineno, function, isinstance(node, ast.Call))
        for function, node in source.nodes(filename)
        if isinstance(node, ast.Delete)
        or (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and node.value.value is None
        )
        or (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            and node.func.attr in _EMPTIES)
    ]  # fmt: skip
