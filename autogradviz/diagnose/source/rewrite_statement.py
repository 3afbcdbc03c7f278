"""Rewrite the user's own statement so that it keeps no graph, or hides no NaN."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source import source_index as source
from autogradviz.support.parse_source import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation

_SIMPLE: Final = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return)
_WHERE_ARGUMENTS: Final = 3
_SAFE: Final = {"exp": 0.0, "expm1": 0.0}
"""Inputs at which operators and their derivatives are finite, if it is not 1."""


def detached_sum(location: SourceLocation | None) -> str | None:
    """Return a statement that adds to a variable, with ``detach()`` on what it adds.

    None if the line is no such statement: ``total += loss`` or ``total = total + loss``.
    """
    for statement in _statements(location):
        if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
            statement.value = _detached(statement.value)
            return ast.unparse(statement)
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.BinOp):
            continue
        total, value = ast.unparse(statement.targets[0]), statement.value
        if isinstance(value.op, ast.Add) and ast.unparse(value.left) == total:
            value.right = _detached(value.right)
            return ast.unparse(statement)
        if isinstance(value.op, ast.Add) and ast.unparse(value.right) == total:
            value.left = _detached(value.left)
            return ast.unparse(statement)
    return None


def safe_input(made: SourceLocation | None, op: str, chosen: SourceLocation | None) -> str | None:
    """Return the statement that called an operator, with its input chosen by ``torch.where``.

    Args:
        made: the line of the operator.
        op: its name, "sqrt".
        chosen: the line with the ``where`` that left its result out.

    Returns:
        None if the two calls are not found, or several are.
    """
    statements = list(_statements(made))
    calls = [(each, call) for each in statements for call in _calls(each, op)]
    wheres = [call for each in _statements(chosen) for call in _calls(each, "where")]
    if len(calls) != 1 or len(wheres) != 1:
        return None
    [(statement, call)], [where] = calls, wheres
    if len(where.args) != _WHERE_ARGUMENTS or where.keywords:
        return None
    condition, first, second = where.args
    names = {ast.unparse(call)}
    if isinstance(statement, ast.Assign) and statement.value is call:
        names.add(ast.unparse(statement.targets[0]))
    inside = [
        bool(names & {ast.unparse(node) for node in ast.walk(arm)}) for arm in (first, second)
    ]
    if inside.count(True) != 1:
        return None
    safe = ast.Constant(_SAFE.get(op, 1.0))

    def choose(value: ast.expr) -> ast.expr:
        arms = [value, safe] if inside[0] else [safe, value]
        return ast.Call(where.func, [condition, *arms], [])

    method = call.func
    if not isinstance(method, ast.Attribute):
        return None
    if call.args:
        call.args[0] = choose(call.args[0])
    else:
        method.value = choose(method.value)
    return ast.unparse(statement)


def _detached(value: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(value, "detach"), [], [])


def _calls(statement: ast.stmt, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield from [node] * (node.func.attr == name)


def _statements(location: SourceLocation | None) -> Iterator[ast.stmt]:
    """Yield the simple statement at a line: its recorded text, or else that of its file."""
    if location is None:
        return
    text = location.text
    try:
        yield from parse(text).body
    except (SyntaxError, ValueError):
        nodes = (node for _, node in source.nodes(location.filename) if isinstance(node, _SIMPLE))
        around = [n for n in nodes if n.lineno <= location.lineno <= (n.end_lineno or 0)]
        for node in around[:1]:
            yield from parse(ast.unparse(node)).body  # a copy, which the caller changes
