"""First access to a lazily computed value (``cached_property``, ``lru_cache``)."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from autogradviz.diagnose.blame.line_candidate import LineCandidate, best_line
from autogradviz.diagnose.source import index as source

if TYPE_CHECKING:
    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.blame.window import RecomputeWindow
    from autogradviz.diagnose.evidence.facts import Evidence


def find_first_access(window: RecomputeWindow, name: str) -> SourceLocation | None:
    """Return the line that called a cached function, or read a cached property, in a window."""
    return best_line(
        LineCandidate(
            filename, node.lineno, function, window.ran_in_window(filename, function, node.lineno)
        )
        for filename in window.evidence.user_files
        for function, node in source.nodes(filename)
        if isinstance(node, (ast.Attribute, ast.Call))
        and source.last_name(node.func if isinstance(node, ast.Call) else node) == name
    )


def names_bound_to(evidence: Evidence, class_name: str) -> tuple[str, ...]:
    """Return the names to which the user's code assigns instances of a class."""
    return tuple(
        name
        for filename in evidence.user_files
        for made, name in source.made_objects(filename)
        if made == class_name
    )
