"""The variables that the statement on a line assigns and reads."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from autogradviz.diagnose.source import source_index as source

if TYPE_CHECKING:
    from autogradviz.analysis import SourceLocation


def names_assigned(place: SourceLocation) -> set[str]:
    """Return the variables that the statement on a line assigns."""
    return _names(place, ast.Store)


def names_read(place: SourceLocation) -> set[str]:
    """Return the variables that the statement on a line reads."""
    return _names(place, ast.Load)


def _names(place: SourceLocation, context: type[ast.expr_context]) -> set[str]:
    return {
        part.id
        for statement in source.simple_statements(place)
        for part in ast.walk(statement)
        if isinstance(part, ast.Name) and isinstance(part.ctx, context)
    }
