"""Statements that drop a reference: ``del``, ``= None``, ``pop``, ``clear``."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.rank_candidate_lines import LineCandidate, best_line
from autogradviz.diagnose.source import source_index as source

if TYPE_CHECKING:
    from autogradviz.analysis import SourceLocation
    from autogradviz.diagnose.blame.code_run_between import RecomputeWindow

_REMOVERS: Final = frozenset({"pop", "popitem", "clear", "remove", "discard", "popleft"})


def find_deletion(
    window: RecomputeWindow, *, at_least: int, in_forward: bool = False
) -> SourceLocation | None:
    """Return the line that dropped a reference in a region's forward, or in its window.

    Args:
        window: the window between forward and recomputation.
        at_least: the lowest certainty to accept.
        in_forward: look in the region's forward.
    """

    def certainty(filename: str, function: str, lineno: int) -> int:
        if in_forward:
            return window.ran_in_region(filename, function)
        return window.ran_in_window(filename, function, lineno)

    return best_line(
        (
            LineCandidate(
                filename,
                node.lineno,
                function,
                certainty(filename, function, node.lineno),
                (not isinstance(node, ast.Call),),
            )
            for filename in window.evidence.user_files
            for function, node in source.nodes(filename)
            if isinstance(node, (ast.Delete, ast.Assign, ast.Call)) and _drops(node)
        ),
        at_least=at_least,
    )


def _drops(node: ast.Delete | ast.Assign | ast.Call) -> bool:
    if isinstance(node, ast.Assign):
        return isinstance(node.value, ast.Constant) and node.value.value is None
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in _REMOVERS
    return True
