"""Statements around a checkpointed region, changed so that both of its runs are the same."""

from __future__ import annotations

import ast
from copy import deepcopy
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source.source_index import functions, last_name, nodes_around
from autogradviz.support.source_lines_and_libraries import lines_of, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation

_MOST_LINES: Final = 8
_PAIR: Final = 2


def moved_below(place: SourceLocation | None, later: SourceLocation | None) -> str:
    """Return a later statement of the block of a line, and after it the one at the line.

    It is "" if what is between them, or the later statement, uses what the moved one does.

    Args:
        place: the line to move.
        later: the line of the statement that should come before it.
    """
    for moved, between, last in _in_one_block(place, later):
        used = _names(moved)
        alone = isinstance(moved, ast.With) and len(moved.body) == 1
        if (hasattr(moved, "body") and not alone) or isinstance(moved, ast.Return):
            continue
        if any(used & _names(each) for each in (*between, last)):
            continue
        assert place is not None
        first, *rest = ast.unparse(moved).splitlines()
        moves = f"{first}  # moved here from line {place.lineno}"
        return "\n".join([ast.unparse(last), moves, *rest])
    return ""


def kept_open(place: SourceLocation | None, later: SourceLocation | None) -> str:
    """Return a ``with`` statement that begins at a line and ends after a later statement.

    It is "" without one, or if it were long.
    """
    for block, between, last in _in_one_block(place, later):
        if isinstance(block, ast.With) and place is not None and block.lineno == place.lineno:
            whole = deepcopy(block)
            whole.body = [*whole.body, *between, last]
            text = ast.unparse(whole)
            if len(text.splitlines()) <= _MOST_LINES:
                return text
    return ""


def with_equal_contexts(place: SourceLocation | None) -> str:
    """Return a statement that returns two contexts, with the first one twice, "" without one."""
    for statement in nodes_around(place) if place is not None else ():
        if not isinstance(statement, ast.stmt) or statement.lineno != getattr(place, "lineno", 0):
            continue
        if hasattr(statement, "body"):
            continue
        copied = deepcopy(statement)
        for node in ast.walk(copied):
            value = getattr(node, "body" if isinstance(node, ast.Lambda) else "value", None)
            if isinstance(value, ast.Tuple) and len(value.elts) == _PAIR:
                value.elts[1] = deepcopy(value.elts[0])
                return ast.unparse(copied)
    return ""


def without_cache(place: SourceLocation | None) -> str:
    """Return the head of a ``with`` that enters autocast, without its cache, "" if unknown."""
    try:
        found = parse(f"{place.text.strip()} pass").body if place is not None else []
    except (SyntaxError, ValueError):
        return ""
    for statement in found:
        calls = [
            item.context_expr
            for item in getattr(statement, "items", ())
            if isinstance(item.context_expr, ast.Call)
            and last_name(item.context_expr.func) == "autocast"
        ]
        if len(calls) == 1:
            keywords = [each for each in calls[0].keywords if each.arg != "cache_enabled"]
            calls[0].keywords = [*keywords, ast.keyword("cache_enabled", ast.Constant(value=False))]
            return ast.unparse(statement).splitlines()[0]
    return ""


def _in_one_block(
    place: SourceLocation | None, later: SourceLocation | None
) -> Iterator[tuple[ast.stmt, list[ast.stmt], ast.stmt]]:
    """Yield the statements of one block at two lines, with those between them."""
    if place is None or later is None or place.filename != later.filename:
        return
    for block in _blocks(place.filename):
        first, last = (
            next((at for at, each in enumerate(block) if line.lineno in lines_of(each)), None)
            for line in (place, later)
        )
        if first is not None and last is not None and first < last:
            if not hasattr(block[last], "body"):
                yield block[first], block[first + 1 : last], block[last]
            return


def _blocks(filename: str) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of statements of a file."""
    for _, owner in functions(filename):
        if isinstance(owner, ast.Module):
            for node in ast.walk(owner):
                for name in ("body", "orelse", "finalbody"):
                    block = getattr(node, name, None)
                    if isinstance(block, list):
                        yield block


def _names(statement: ast.stmt) -> set[str]:
    """Return the variables of a statement, apart from modules that it reads functions of."""
    found = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    return found - {"torch", "np", "numpy"}
