"""Statements that write a variable or attribute, or create the object it refers to."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autogradviz.diagnose.source.name_aliases import aliases
from autogradviz.diagnose.source.python_numpy_mutating_calls import (
    CONSUMERS,
    METHODS,
    Direction,
    written_by_call,
)
from autogradviz.diagnose.source.source_index import (
    container,
    functions,
    is_named,
    is_string,
    last_name,
    location,
    names_in,
    nodes,
    own_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import SourceLocation


@dataclass(frozen=True, slots=True)
class Write:
    """One statement that writes a name."""

    lineno: int
    function: str  # qualified
    direction: Direction
    key: str | None = None  # of an item, as in source: "'flag'"
    attribute: bool | None = False  # an attribute, not a variable; None if unknown
    alias: bool = False  # through another name
    indirect: bool = False  # the statement does not name the target
    rebinds: bool = False  # ``name = ...``
    declared: bool = False  # ``global`` or ``nonlocal``
    drains: bool = False  # iterates over it, which changes only an iterator


def writes(filename: str, name: str) -> list[Write]:
    """Return the statements of a file that write a variable or attribute of that name."""
    found = []
    for function, owner in functions(filename):
        declared = any(isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names
                       for node in own_nodes(owner))  # fmt: skip
        for node in own_nodes(owner):
            for target, direction in _targets(node, name):
                attribute = _is_attribute(container(target))
                line = getattr(node, "lineno", 0)
                assigned = isinstance(node, (ast.Assign, ast.AnnAssign))
                rebinds = assigned and not isinstance(target, ast.Subscript)
                key = _key(target)
                drains = isinstance(node, (ast.For, ast.AsyncFor)) and target in ast.walk(node.iter)
                write = Write(
                    line, function, direction, key, attribute,
                    rebinds=rebinds, declared=declared, drains=drains,
                )  # fmt: skip
                found.append(write)
                break
    found += _through_aliases(filename, name)
    found += _through_methods(filename, name)
    return sorted(found, key=lambda write: write.lineno)


def _through_aliases(filename: str, name: str) -> Iterator[Write]:
    """Yield the statements that change the object of a name through another name."""
    known = set(aliases(filename, name))
    for function, owner in functions(filename):
        for alias in [each for scope, each in known if scope == function]:
            for node in own_nodes(owner):
                for target, direction in _targets(node, alias):
                    # ``table = ...`` rebinds the name; ``table[n] = ...`` writes the object.
                    own = alias != name or isinstance(container(target), ast.Name)
                    if own and _mutates_object(node, target):
                        line = getattr(node, "lineno", 0)
                        yield Write(line, function, direction, _key(target), alias=True)


def _mutates_object(node: ast.AST, target: ast.AST) -> bool:
    """Return whether a statement mutates an object instead of rebinding a name."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return not isinstance(
            node.value, ast.Constant
        )  # items += [x] mutates; a number is replaced
    return isinstance(node, ast.Call) or isinstance(target, ast.Subscript)


def _through_methods(filename: str, name: str) -> Iterator[Write]:
    """Yield the calls of a bound method with a name: ``push = cache.append``, ``push(x)``."""
    bound = {
        last_name(target): METHODS[node.value.attr]
        for _, node in nodes(filename)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute)
        if node.value.attr in METHODS and is_named(node.value.value, name)
        for target in node.targets
    }
    for function, node in nodes(filename) if bound else ():
        direction = bound.get(last_name(node.func)) if isinstance(node, ast.Call) else None
        if direction is not None:
            yield Write(getattr(node, "lineno", 0), function, direction, alias=True)


def _is_attribute(target: ast.AST) -> bool | None:
    return None if isinstance(target, ast.Constant) else not isinstance(target, ast.Name)


def _key(target: ast.AST) -> str | None:
    return ast.unparse(target.slice) if isinstance(target, ast.Subscript) else None


def _targets(node: ast.AST, name: str) -> Iterator[tuple[ast.AST, Direction]]:
    """Yield the targets of that name which a statement writes."""
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in (part for each in targets for part in _flat(each)):
            if is_named(target, name):
                yield target, "grew" if isinstance(target, ast.Subscript) else "changed"
            elif isinstance(target, ast.Subscript) and is_string(target.slice, name):
                yield ast.Constant(name), "changed"  # vars(config)["name"] = ...
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        through = isinstance(node.iter, ast.Call) and last_name(node.iter.func) in CONSUMERS
        moved = node.iter.args if through else [node.iter]  # type: ignore[attr-defined]
        yield from (
            (part, "changed") for part in (*_flat(node.target), *moved) if is_named(part, name)
        )
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        given = [item.optional_vars for item in node.items if item.optional_vars is not None]
        yield from ((part, "changed") for each in given for part in _flat(each)
                    if is_named(part, name))  # fmt: skip
    elif isinstance(node, ast.Delete):
        yield from ((target, "shrank") for target in node.targets if is_named(target, name))
    elif isinstance(node, ast.Call):
        yield from written_by_call(node, name)


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            yield from _flat(part)
    elif isinstance(target, ast.Starred):
        yield from _flat(target.value)
    else:
        yield target


def creations(filename: str, name: str) -> list[tuple[int, str]]:
    """Return line and function of the call or decorator that created the object of a name."""
    found = []
    for function, owner in functions(filename):
        found += [
            (node.lineno, function)
            for node in own_nodes(owner)
            if isinstance(node, ast.Assign)
            and any(is_named(target, name) for target in node.targets)
            and any(isinstance(part, ast.Call) for part in ast.walk(node.value))
        ]
        decorators = getattr(owner, "decorator_list", ())
        if decorators and function.rpartition(".")[2] == name:
            found.append((decorators[0].lineno, function))
    return sorted(found)


def closures(filename: str, enclosing: str, name: str) -> list[int]:
    """Return the lines that define functions inside another which read one of its variables."""
    found = []
    for function, owner in functions(filename):
        inner = function.removeprefix(f"{enclosing}.<locals>.")
        if inner != function and "." not in inner and name in names_in(filename, function):
            found.append(getattr(owner, "lineno", 0))
        if function == enclosing:
            found += [
                node.lineno
                for node in own_nodes(owner)
                if isinstance(node, ast.Lambda)
                and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node.body))
            ]
    return sorted(found)


def attribute_assignment(near: SourceLocation | None, name: str) -> SourceLocation | None:
    """Return the line, in the function of a location, that sets an attribute of that name."""
    if near is None:
        return None
    for write in writes(near.filename, name):
        found = location(near.filename, write.lineno, write.function)
        if write.function == near.function and f".{name}" in found.text:
            return found
    return None
