"""The branch that decided whether a line was executed."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from autogradviz.analysis.types import SourceLocation

if TYPE_CHECKING:
    from collections.abc import Iterable


def find_branch(stack: Iterable[SourceLocation]) -> SourceLocation | None:
    """Return the innermost ``if`` that a stack stands in; None if the source cannot be read.

    Args:
        stack: the user's lines, innermost first.
    """
    for location in stack:
        lines, tree = _parse(location.filename)
        if tree is None or not 0 < location.lineno <= len(lines):
            continue
        if lines[location.lineno - 1].strip() != location.text:
            continue  # the file has changed
        branches = [
            node.test.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.If)
            and any(
                part.lineno <= location.lineno <= (part.end_lineno or part.lineno)
                for part in (*node.body, *node.orelse)
            )
            and not _is_main_guard(node)
        ]
        if branches:
            lineno = max(branches)
            return SourceLocation(
                filename=location.filename,
                lineno=lineno,
                function=location.function,
                text=lines[lineno - 1].strip(),
            )
    return None


def _is_main_guard(node: ast.If) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "__name__" for each in ast.walk(node.test))


@lru_cache(maxsize=64)
def _parse(filename: str) -> tuple[list[str], ast.Module | None]:
    try:
        text = Path(filename).read_text(encoding="utf-8")
        return text.splitlines(), ast.parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError):
        return [], None
