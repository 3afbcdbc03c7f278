"""The statement that put a tensor, with its graph, into something that lasts."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.statements_rewritten_as_fixes import (
    is_storing_call,
    sets_part_of_object,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.analysis import SourceLocation

_WITHOUT_GRAPH: Final = frozenset({"detach", "data", "item"})
_Values: TypeAlias = "dict[str, SourceLocation | None]"
"""Variables that have the tensor, with the entry of a container that has it, None for itself."""


def stored_at(
    frames: Sequence[SourceLocation],
) -> tuple[SourceLocation, frozenset[str]] | None:
    """Return the statement to change, so that a tensor is stored without its graph.

    It comes with the names that the tensor has in the function of the statement.

    The tensor is followed from the line that made it to its callers: through variables, entries of
    dicts and lists, and results. If a function returns it both as it is and in a container, the
    container is a log, and its entry is the statement; else it is what stores the container.

    Args:
        frames: the lines that were running when the tensor was made, innermost first.
    """
    returned: list[tuple[ast.expr, _Values]] = []
    for depth, frame in enumerate(frames):
        statements = source.simple_statements(frame)
        values: _Values = {}
        for statement in statements:
            if any(map(is_storing_call, ast.walk(statement))):
                return frame, frozenset()
            for target in _targets(statement):
                values |= dict.fromkeys(_names(target)) if not depth else _given(target, returned)
        if not values:  # a return, or a comprehension
            continue
        found, returned = _in_function(frame, values)
        if found is not None:
            return found, frozenset(values)
    return None


def stores_without_graph(frames: Sequence[SourceLocation]) -> bool:
    """Return whether a function stores what a line assigned only as ``loss.detach()``."""
    for frame in frames:
        names = {
            name
            for statement in source.simple_statements(frame)
            for target in _targets(statement)
            for name in _names(target)
        }
        for node in source.nodes_around(frame) if names else ():
            stored = _stored(node)
            if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Dict, ast.List)):
                stored = [node.value]
            if any(
                isinstance(part, ast.Attribute)
                and part.attr in _WITHOUT_GRAPH
                and source.last_name(part.value) in names
                for each in stored
                for part in ast.walk(each)
            ):
                return True
    return False


def _in_function(
    frame: SourceLocation, values: _Values
) -> tuple[SourceLocation | None, list[tuple[ast.expr, _Values]]]:
    """Return the statement of a function that stores one of its variables, and what it returns."""
    returned: list[tuple[ast.expr, _Values]] = []
    nodes = [node for node in source.nodes_around(frame) if isinstance(node, (ast.stmt, ast.Call))]
    for node in sorted(nodes, key=lambda each: (each.lineno, each.col_offset)):
        if isinstance(node, ast.Return) and node.value is not None:
            returned.append((node.value, dict(values)))
        for stored in _stored(node):
            for line, name, _ in _parts(stored, values):
                return values[name] or source.location(
                    frame.filename, line, frame.function
                ), returned
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            for line, name, entry in _parts(node.value, values):
                place = source.location(frame.filename, line, frame.function)
                values[node.targets[0].id] = values[name] or (place if entry else None)
                break
    return None, returned


def _given(target: ast.expr, returned: list[tuple[ast.expr, _Values]]) -> _Values:
    """Return the names to which a call's targets bind values that the called function returned."""
    found: _Values = {}
    for value, values in returned:
        parts = value.elts if isinstance(value, ast.Tuple) else [value]
        targets = [target] if not isinstance(target, ast.Tuple) else target.elts
        if len(parts) != len(targets):
            return dict.fromkeys(_names(target))
        has = [next(iter(_parts(part, values)), None) for part in parts]
        alone = any(part and not part[2] and values[part[1]] is None for part in has)
        for each, part in zip(targets, has, strict=True):
            if part is not None:
                entry = values[part[1]] if alone else None
                found |= dict.fromkeys(_names(each), entry)
    return found or dict.fromkeys(_names(target))


def _targets(statement: ast.stmt) -> list[ast.expr]:
    return statement.targets if isinstance(statement, ast.Assign) else []


def _names(target: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}


def _parts(value: ast.expr, values: _Values) -> Iterator[tuple[int, str, bool]]:
    """Yield the variables that an expression keeps, each with its line and whether in an entry."""
    if isinstance(value, ast.Name):
        if value.id in values:
            yield value.lineno, value.id, False
        return
    inner: list[ast.expr] = []
    if isinstance(value, ast.Dict):
        inner = value.values
    elif isinstance(value, (ast.Tuple, ast.List, ast.Set)):
        inner = value.elts
    elif isinstance(value, ast.Call) and source.last_name(value.func) in {"dict", "list", "tuple"}:
        inner = [*value.args, *[word.value for word in value.keywords]]
    for each in inner:
        yield from ((line, name, True) for line, name, _ in _parts(each, values))


def _stored(node: ast.AST) -> list[ast.expr]:
    """Return the expressions whose values a statement or call stores."""
    if isinstance(node, ast.Call):
        given = [*node.args, *(word.value for word in node.keywords)]
        return given if is_storing_call(node) else []
    if isinstance(node, ast.Assign) and sets_part_of_object(node):
        return [node.value]
    return []
