"""Delta debugging: leaves statements out of a program as long as it does the same."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.reproduce.program_model import statements_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.reproduce.program_model import Program, Statement

_NOT_COUNTED: Final = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.With)


def reduce_program(
    program: Program,
    is_same: Callable[[set[Statement]], bool],
    has_time: Callable[[], bool],
    dropped: set[Statement] | None = None,
) -> set[Statement]:
    """Return the statements that the program can do without.

    Args:
        program: it does what it is to do.
        is_same: whether the program without some statements still does.
        has_time: whether to go on.
        dropped: statements that it is already without.
    """
    items = _items(program)
    dropped = dropped or set()
    size = max(1, (len(items) + 1) // 2)
    while has_time():
        changed = False
        for start in range(len(items) - 1 - (len(items) - 1) % size, -1, -size):
            part = {each for item in items[start : start + size] for each in item}
            if part <= dropped or not has_time():
                continue
            if is_same(dropped | part):
                dropped |= part
                changed = True
        items = [item for item in items if not dropped.issuperset(item)]
        if size == 1 and not changed:
            break
        size = max(1, size // 2)
    return dropped


def _items(program: Program) -> list[list[Statement]]:
    """Return the statements in groups: one of a region's forward with those that repeat it."""
    twins = {twin for each in program.statements() for twin in each.twins}
    present = set(program.statements())
    return [
        [each, *(twin for twin in each.twins if twin in present)]
        for each in statements_of(program.main)
        if each not in twins
    ]


def count_statements(text: str) -> int:
    """Return the number of statements of a program, without imports, headings and the seed."""
    try:
        parsed = ast.parse(text)
    except SyntaxError:  # a program that could not be written whole
        return 0
    return sum(
        isinstance(each, ast.stmt)
        and not isinstance(each, _NOT_COUNTED)
        and "manual_seed" not in ast.unparse(each)
        for each in ast.walk(parsed)
    )
