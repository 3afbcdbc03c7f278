"""The branch that decided whether a line was executed."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from autogradviz.analysis.types import SourceLocation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


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


def find_branch_not_taken(
    stack: Sequence[SourceLocation], other: Collection[SourceLocation]
) -> SourceLocation | None:
    """Return the ``if`` at which another rank left the way that leads to a line.

    That is the outermost ``if`` around the stack with a body, or an ``else``, in which the other
    rank ran no op, although it ran ops around it. None if there is no such branch, if the other
    rank ran the same lines, or if the source cannot be read.

    Args:
        stack: the lines of one rank, innermost first.
        other: all lines that the other rank ran ops at.
    """
    ran = {(each.filename, each.lineno) for each in other}
    parted = [each for each in stack if (each.filename, each.lineno) not in ran]
    for location in reversed(parted):
        lines, tree = _parse(location.filename)
        if tree is None or not 0 < location.lineno <= len(lines):
            continue
        if lines[location.lineno - 1].strip() != location.text:
            continue  # the file has changed
        for node in ast.walk(tree):  # outer branches before those inside
            if not isinstance(node, ast.If) or _is_main_guard(node):
                continue
            for arm in (node.body, node.orelse):
                spans = [(part.lineno, part.end_lineno or part.lineno) for part in arm]
                if any(first <= location.lineno <= last for first, last in spans) and not any(
                    (location.filename, number) in ran
                    for first, last in spans
                    for number in range(first, last + 1)
                ):
                    return SourceLocation(
                        filename=location.filename,
                        lineno=node.test.lineno,
                        function=location.function,
                        text=lines[node.test.lineno - 1].strip(),
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
