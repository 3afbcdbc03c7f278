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
            t for t in node.targets if isinstance(t, ast.Subscript) and is_named(t.value, name)
        ]
        items += [t for t in node.targets if not isinstance(t, ast.Subscript) and is_named(t, name)]
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
    if isinstance(called, ast.Name) and called.id == "next" and node.args:
        return "changed" if is_named(node.args[0], name) else None
    if isinstance(called, ast.Name) and called.id in {"setattr", "delattr"} and len(node.args) > 1:
        key = node.args[1]
        return "changed" if isinstance(key, ast.Constant) and key.value == name else None
    if (
        isinstance(called, ast.Attribute)
        and called.attr == "update"
        and not is_named(called.value, name)
    ):
        named = any(word.arg == name for word in node.keywords)
        return "changed" if named else None
    if not isinstance(called, ast.Attribute) or not is_named(called.value, name):
        return None
    if called.attr in _GROWS:
        return "grew"
    if called.attr in _SHRINKS:
        return "shrank"
    return "changed" if called.attr in _OTHERS else None


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            yield from _flat(part)
    elif isinstance(target, ast.Starred):
        yield from _flat(target.value)
    else:
        yield target


def makers(filename: str, name: str) -> list[tuple[int, str]]:
    """Return line and function of the definition with a decorator, or the call, that made a name."""
    found = []
    for function, owner in functions(filename):
        for node in own_nodes(owner):
            if isinstance(node, ast.Assign) and any(is_named(t, name) for t in node.targets):
                if any(isinstance(part, ast.Call) for part in ast.walk(node.value)):
                    found.append((node.lineno, function))
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
