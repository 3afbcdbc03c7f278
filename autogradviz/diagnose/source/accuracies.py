"""Accuracies: indices of largest values that are compared with labels. They have no gradient."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.operands_changed_as_fixes import simple_statements

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.analysis import SourceLocation

_COMPARISONS: Final = frozenset({"eq", "ne"})
_LARGEST: Final = frozenset({"max", "topk", "sort"})
"""Functions that return indices next to their values."""


def loss_for_accuracy(location: SourceLocation | None) -> str | None:
    """Return the comment that names a loss, if the statement at a line computes an accuracy.

    The statement has the comparison, gives it the indices, or reads its result.

    Returns:
        None if it does not. ``# an accuracy has no gradient: ...`` with the values whose largest
        are searched, and with the labels.
    """
    if location is None:
        return None
    assigned = _assignments(location)
    given, kept = list(simple_statements(location)), set[str]()
    for statement in given:
        if isinstance(statement, ast.Assign):
            kept |= {each.id for each in statement.targets if isinstance(each, ast.Name)}
    later = [
        node
        for node in source.nodes_around(location)
        if isinstance(node, (ast.Assign, ast.Return, ast.Expr, ast.AugAssign))
        and node.lineno > location.lineno
        and kept & _names(node)
        and any(_indices(each, {}) is not None for each in given)
    ]
    for scores, labels in _compared([*given, *later], assigned):
        loss = f"torch.nn.functional.cross_entropy({ast.unparse(scores)}, {ast.unparse(labels)})"
        return f"# an accuracy has no gradient: use a loss, as {loss}"
    return None


def _compared(
    statements: Iterable[ast.AST], assigned: dict[str, ast.expr]
) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the scores and the labels of comparisons that statements have, or read by name."""
    waiting, seen = list(statements), set[str]()
    while waiting:
        statement = waiting.pop()
        for node in ast.walk(statement):
            for first, second in _sides(node):
                for indices, labels in ((first, second), (second, first)):
                    scores = _indices(indices, assigned)
                    if scores is not None:
                        yield scores, labels
        new = (_names(statement) & assigned.keys()) - seen
        seen |= new
        waiting += [assigned[each] for each in sorted(new)]


def _sides(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the expressions that a node compares for equality."""
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
        yield node.left, node.comparators[0]
    elif isinstance(node, ast.Call) and source.last_name(node.func) in _COMPARISONS:
        operands = _operands(node)
        if len(operands) > 1:
            yield operands[0], operands[1]


def _indices(node: ast.AST, assigned: dict[str, ast.expr]) -> ast.expr | None:
    """Return the values of which an expression has the indices of the largest, None if of none."""
    for part in ast.walk(node):
        call = _owner(part)
        if isinstance(call, ast.Call):
            name = source.last_name(call.func)
            if name == "argmax" or (call is not part and name in _LARGEST):
                return next(iter(_operands(call)), None)
        if isinstance(part, ast.Name) and part.id in assigned:
            return _indices(assigned[part.id], {})
    return None


def _owner(node: ast.AST) -> ast.AST:
    """Return ``x.max(1)`` of ``x.max(1)[1]`` and ``x.max(1).indices``, other nodes unchanged."""
    if isinstance(node, ast.Subscript):
        return node.value if ast.unparse(node.slice) == "1" else node
    return node.value if isinstance(node, ast.Attribute) and node.attr == "indices" else node


def _operands(call: ast.Call) -> list[ast.expr]:
    """Return the operands of a call of a method or of a function of torch."""
    function = call.func
    if isinstance(function, ast.Attribute) and ast.unparse(function.value) != "torch":
        return [function.value, *call.args]
    return list(call.args)


def _assignments(location: SourceLocation) -> dict[str, ast.expr]:
    """Return the last value that each variable of a function gets up to a line, by name."""
    found = [
        node
        for node in source.nodes_around(location)
        if isinstance(node, ast.Assign) and node.lineno <= location.lineno
    ]
    return {
        target.id: node.value
        for node in sorted(found, key=lambda node: node.lineno)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _names(node: ast.AST) -> set[str]:
    return {
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)
    }
