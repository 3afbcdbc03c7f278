"""Which statements write a name, or made what it stands for."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autogradviz.diagnose.source import functions, is_named, names_in, own_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

Direction: TypeAlias = Literal["grew", "shrank", "changed"]

_GROWS: Final = frozenset(
    {"append", "appendleft", "extend", "add", "insert", "update", "setdefault"}
)
_SHRINKS: Final = frozenset(
    {"pop", "popleft", "popitem", "clear", "remove", "discard", "cache_clear"}
)
_OTHERS: Final = frozenset({"sort", "reverse", "rotate", "fill", "set", "reset", "send"})


@dataclass(frozen=True, slots=True)
class Write:
    """One statement that writes a name."""

    lineno: int
    function: str  # qualified
    direction: Direction
    key: str | None = None  # of an item, as source: "'flag'"


def writes(filename: str, name: str) -> list[Write]:
    """Return the statements of a file that write a variable or an attribute of that name."""
    found = [
        Write(getattr(node, "lineno", 0), function, *written)
        for function, owner in functions(filename)
        for node in own_nodes(owner)
        if (written := _writes_name(node, name)) is not None
    ]
    return sorted(found, key=lambda write: write.lineno)


def _writes_name(node: ast.AST, name: str) -> tuple[Direction, str | None] | None:
    """Return how a statement writes a name, and which item of it."""
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return _assigns([part for target in targets for part in _flat(target)], name)
    if isinstance(node, (ast.For, ast.AsyncFor)):
        looped = any(is_named(part, name) for part in _flat(node.target)) or is_named(
            node.iter, name
        )
        return ("changed", None) if looped else None
    if isinstance(node, ast.Delete):
        items = [
            target
            for target in node.targets
            if is_named(target.value if isinstance(target, ast.Subscript) else target, name)
        ]
        return ("shrank", None) if items else None
    if isinstance(node, ast.Call):
        direction = _call_writes(node, name)
        return None if direction is None else (direction, None)
    return None


def _assigns(targets: list[ast.expr], name: str) -> tuple[Direction, str | None] | None:
    for target in targets:
        if isinstance(target, ast.Subscript):
            if is_named(target.value, name):
                return "grew", ast.unparse(target.slice)
            if isinstance(target.slice, ast.Constant) and target.slice.value == name:
                return "changed", None  # vars(config)["name"] = ...
        elif is_named(target, name):
            return "changed", None
    return None


def _call_writes(node: ast.Call, name: str) -> Direction | None:
    called = node.func
    if isinstance(called, ast.Name):
        return "changed" if _advances(called.id, node.args, name) else None
    if not isinstance(called, ast.Attribute):
        return None
    if not is_named(called.value, name):  # vars(config).update(name=...)
        named = called.attr == "update" and any(word.arg == name for word in node.keywords)
        return "changed" if named else None
    if called.attr in _GROWS:
        return "grew"
    if called.attr in _SHRINKS:
        return "shrank"
    return "changed" if called.attr in _OTHERS else None


def _advances(function: str, given: list[ast.expr], name: str) -> bool:
    """Return whether a built-in writes a name: next(name), setattr(x, "name", ...)."""
    if function == "next":
        return bool(given) and is_named(given[0], name)
    key = given[1] if function in {"setattr", "delattr"} and len(given) > 1 else None
    return isinstance(key, ast.Constant) and key.value == name


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            yield from _flat(part)
    elif isinstance(target, ast.Starred):
        yield from _flat(target.value)
    else:
        yield target


def makers(filename: str, name: str) -> list[tuple[int, str]]:
    """Return line and function of the decorator, or of the call, that made a name."""
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
    """Return the lines where functions inside another are made that read one of its variables."""
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
