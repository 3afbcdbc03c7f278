"""The branch that decided whether a line was executed, or the loop that decided how often."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from autogradviz.support.source_lines_and_libraries import lines_of, parse

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from autogradviz.analysis.types import SourceLocation


def find_branch(stack: Iterable[SourceLocation]) -> SourceLocation | None:
    """Return the innermost ``if`` that a stack stands in; None if the source cannot be read.

    Args:
        stack: the user's lines, innermost first.
    """
    for location in stack:
        lines, tree = _source(location)
        branches = [
            node.test.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.If)
            and any(_contains(part, location.lineno) for part in (*node.body, *node.orelse))
            and not _is_main_guard(node)
        ]
        if branches:
            return _at_line(location, max(branches), lines)
    return None


def find_loop(
    stack: Iterable[SourceLocation], others: Collection[Sequence[SourceLocation]]
) -> SourceLocation | None:
    """Return the innermost loop around a stack that most other stacks stand in too.

    A loop over parameters contains few of the stacks of a training step, that over batches all.

    Args:
        stack: the user's lines, innermost first.
        others: the stacks of the ops of a training step.

    Returns:
        The first line of the loop. None if there is none, or if the source cannot be read.
    """
    for location in stack:
        lines, tree = _source(location)
        loops = [
            part
            for block in _blocks_around(tree, location.lineno)
            for part in block
            if isinstance(part, ast.For | ast.While)
            and any(_contains(each, location.lineno) for each in part.body)
        ]
        for loop in reversed(loops):
            inside = sum(any(_is_in(line, location, loop) for line in each) for each in others)
            if 2 * inside > len(others):
                return _at_line(location, loop.lineno, lines)
    return None


def _is_in(line: SourceLocation, location: SourceLocation, loop: ast.stmt) -> bool:
    """Return whether a line is in a loop around another line of the same function."""
    place = line.filename, line.function
    return place == (location.filename, location.function) and _contains(loop, line.lineno)


def _source(location: SourceLocation) -> tuple[Sequence[str], ast.Module]:
    """Return lines and syntax tree of a file, none if it is not the one that ran."""
    lines, tree = _parse(location.filename)
    is_known = 0 < location.lineno <= len(lines)
    if tree is None or not is_known or lines[location.lineno - 1].strip() != location.text:
        return (), ast.Module([], [])
    return lines, tree


def _at_line(location: SourceLocation, lineno: int, lines: Sequence[str]) -> SourceLocation:
    return replace(location, lineno=lineno, text=lines[lineno - 1].strip())


def find_branch_not_taken(
    stack: Sequence[SourceLocation], other: Collection[SourceLocation], *, innermost: bool = False
) -> SourceLocation | None:
    """Return the ``if`` at which another rank left the way that leads to a line.

    That is an ``if`` around the stack with a body, or an ``else``, in which the other rank ran no
    op, or one before it that ends in ``return``, ``continue``, ``break`` or ``raise``, and after
    which the other rank ran no op. It counts if the other rank ran ops in its function, or in the
    caller. Of several, it is one whose condition reads the rank, else the outermost one.

    Args:
        stack: the lines of one rank, innermost first.
        other: all lines that the other rank ran ops at.
        innermost: prefer the innermost one.

    Returns:
        The line of its condition. None if there is no such branch, if the other rank ran the same
        lines, or if the source cannot be read.
    """
    ran: dict[str, set[int]] = {}
    for each in other:
        ran.setdefault(each.filename, set()).add(each.lineno)
    functions = {(each.filename, each.function) for each in other}
    reached = [(each.filename, each.function) in functions for each in stack]
    parted = [
        each
        for at, each in enumerate(stack)
        if each.lineno not in ran.get(each.filename, ()) and any(reached[at : at + 2])
    ]
    found: list[tuple[ast.If, SourceLocation]] = []
    for location in reversed(parted):
        lines, tree = _source(location)
        for node in _branches_to(tree, location.lineno, ran.get(location.filename, set())):
            test = node.test.lineno
            text = lines[test - 1].strip()
            found.append((node, replace(location, lineno=test, text=text)))
    if not found:
        return None
    by_rank = [each for each in found if _reads_rank(each[0])]
    return (by_rank or found)[-1 if innermost else 0][1]


def _branches_to(tree: ast.Module, lineno: int, ran: Collection[int]) -> Iterator[ast.If]:
    """Yield the branches that lead to a line and that the lines of a rank do not, outer ones first.

    Args:
        tree: the file.
        lineno: the line.
        ran: the lines of the file at which the rank ran ops.
    """
    for block in _blocks_around(tree, lineno):
        at = next(k for k, part in enumerate(block) if _contains(part, lineno))
        yield from _exit_taken(block, at, ran)
        holder = block[at]
        if isinstance(holder, ast.If) and not _is_main_guard(holder):
            for arm in (holder.body, holder.orelse):
                inside = range(arm[0].lineno, lines_of(arm[-1]).stop) if arm else range(0)
                if lineno in inside and not _any_in(ran, inside):
                    yield holder


def _exit_taken(block: Sequence[ast.stmt], at: int, ran: Collection[int]) -> Iterator[ast.If]:
    """Yield the branch by which a rank left a block before a statement, if only one can be it."""
    inside = range(block[0].lineno, lines_of(block[-1]).stop)
    last = max((each for each in ran if each in inside), default=None)
    if last is None or last >= block[at].lineno:
        return
    exits = [
        part
        for part in block[:at]
        if isinstance(part, ast.If) and _leaves(part) and lines_of(part)[-1] >= last
    ]
    if exits and (len(exits) == 1 or last >= exits[0].body[0].lineno):
        yield exits[0]


def _blocks_around(node: ast.AST, lineno: int) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements that contain a line, outer ones first.

    Those outside of the innermost function are left out, as the line runs when it is called.
    """
    found: list[list[ast.stmt]] = []
    inner: ast.AST | None = node
    while inner is not None:
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
            found.clear()
        parts = [
            value
            for _, value in ast.iter_fields(inner)
            if isinstance(value, list) and value and isinstance(value[0], ast.AST)
        ]
        inner = None
        for block in parts:
            held = next((part for part in block if _contains(part, lineno)), None)
            if held is not None:
                if isinstance(held, ast.stmt):
                    found.append(block)
                inner = held
                break
    yield from found


def _contains(node: ast.AST, lineno: int) -> bool:
    # A case has statements, and no lines of its own.
    parts = ast.iter_child_nodes(node) if not lines_of(node) else ()
    return lineno in lines_of(node) or any(_contains(each, lineno) for each in parts)


def _any_in(lines: Collection[int], span: range) -> bool:
    return any(each in span for each in lines)


def _leaves(node: ast.If) -> bool:
    """Return whether one arm of a branch ends in a jump out of the block."""
    jumps = ast.Return, ast.Continue, ast.Break, ast.Raise
    return any(arm and isinstance(arm[-1], jumps) for arm in (node.body, node.orelse))


def _reads_rank(node: ast.If) -> bool:
    """Return whether a condition reads a name such as "rank", "get_rank" or "is_rank_zero"."""
    names = (
        each.id if isinstance(each, ast.Name) else each.attr
        for each in ast.walk(node.test)
        if isinstance(each, ast.Name | ast.Attribute)
    )
    return any("rank" in name.lower().split("_") for name in names)


def _is_main_guard(node: ast.If) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "__name__" for each in ast.walk(node.test))


@lru_cache(maxsize=64)
def _parse(filename: str) -> tuple[list[str], ast.Module | None]:
    try:
        text = Path(filename).read_text(encoding="utf-8")
        return text.splitlines(), parse(text)
    except (OSError, ValueError, SyntaxError, RecursionError):
        return [], None
