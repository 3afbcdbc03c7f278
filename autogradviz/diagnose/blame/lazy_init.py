"""Which line asked for what is made when it is first asked for, and who holds such a thing."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from autogradviz.diagnose.source import index as source

if TYPE_CHECKING:
    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.blame.window import RecomputeWindow
    from autogradviz.diagnose.evidence.facts import Evidence


def find_first_access(
    evidence: Evidence, between: RecomputeWindow, name: str
) -> SourceLocation | None:
    """Return what called a cached function, or read a cached property, between two runs."""
    found = [
        (-between.outside(filename, function, line), filename, line, function)
        for filename in evidence.user_files
        for line, function in _loads(filename, name)
    ]
    best = min(found, default=None)
    return source.location(*best[1:]) if best is not None and best[0] else None


def names_bound_to(evidence: Evidence, kind: str) -> tuple[str, ...]:
    """Return the names under which the user's code keeps objects of a class."""
    return tuple(
        name
        for filename in evidence.user_files
        for made, name in source.made_objects(filename)
        if made == kind
    )


def _loads(filename: str, name: str) -> list[tuple[int, str]]:
    return [
        (node.lineno, function)
        for function, node in source.nodes(filename)
        if isinstance(node, (ast.Attribute, ast.Call))
        and source.last_name(node.func if isinstance(node, ast.Call) else node) == name
    ]
