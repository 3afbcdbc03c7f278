"""Which line let go of an object that only weak references were left to."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from autogradviz.diagnose.code import source
from autogradviz.diagnose.culprits.between import BETWEEN

if TYPE_CHECKING:
    from autogradviz.diagnose.culprits.between import Between
    from autogradviz.diagnose.evidence import Evidence
    from autogradviz.model import SourceLocation


def find_let_go(evidence: Evidence, between: Between) -> SourceLocation | None:
    """Return the first ``del x`` or ``x = None`` between a region's two runs."""
    found = [
        (filename, line, function)
        for filename in evidence.user_files
        for line, function in _dropped(filename)
        if between.outside(filename, function, line) == BETWEEN
    ]
    return source.location(*min(found)) if found else None


def _dropped(filename: str) -> list[tuple[int, str]]:
    """Return line and function of the statements that give a name up."""
    return [
        (node.lineno, function)
        for function, owner in source.functions(filename)
        for node in source.own_nodes(owner)
        if isinstance(node, ast.Delete)
        or (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and node.value.value is None
        )
    ]
