"""Which statements write a name, or made what it stands for."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autogradviz.diagnose.code.aliases import aliases
from autogradviz.diagnose.code.source import functions, is_named, names_in, own_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

Direction: TypeAlias = Literal["grew", "shrank", "changed"]

_METHODS: Final[dict[str, Direction]] = {
    **dict.fromkeys(
        (
            "append",
            "appendleft",
            "extend",
            "extendleft",
            "add",
            "insert",
            "update",
            "setdefault",
            "put",
            "put_nowait",
            "subtract",
        ),
        "grew",
    ),
    **dict.fromkeys(
        (
            "pop",
            "popleft",
            "popitem",
            "clear",
            "remove",
            "discard",
            "cache_clear",
            "get_nowait",
            "difference_update",
            "intersection_update",
        ),
        "shrank",
    ),
    **dict.fromkeys(
        (
            "sort",
            "reverse",
            "rotate",
            "fill",
            "set",
            "reset",
            "send",
            "move_to_end",
            "resize",
            "partition",
            "frombytes",
            "__setitem__",
            "shuffle",
        ),
        "changed",
    ),
}

_GIVEN: Final = {
    "shuffle", "heappush", "heappop", "heapify", "heapreplace", "heappushpop", "insort",
    "insort_left", "insort_right", "copyto", "put", "put_along_axis", "putmask", "place",
    "fill_diagonal", "at",
}  # fmt: skip
"""Functions of Python's and NumPy's that write their first argument."""
_REGISTERS: Final = frozenset(
    {"register_buffer", "register_parameter", "register_module", "add_module", "__setattr__"}
)
"""What is given the name of a module's attribute."""


@dataclass(frozen=True, slots=True)
class Write:
    """One statement that writes a name."""

    lineno: int
    function: str  # qualified
    direction: Direction
    key: str | None = None  # of an item, as source: "'flag'"
    attribute: bool = False  # of an object, not a variable
    alias: bool = False  # through another name
    unnamed: bool = False  # the statement does not say what it writes
    rebinds: bool = False  # gives the name to something else: ``name = ...``
    value: str = ""  # what it is given, as source, where that is a constant or a name
    drains: bool = False  # goes through it, which writes an iterator and nothing else


def writes(filename: str, name: str) -> list[Write]:
    """Return the statements of a file that write a variable or an attribute of that name."""
    found = []
    for function, owner in functions(filename):
        for node in own_nodes(owner):
            for target, direction in _targets(node, name):
                attribute = not isinstance(_without_items(target), ast.Name)
                line = getattr(node, "lineno", 0)
                assigned = isinstance(node, (ast.Assign, ast.AnnAssign))
                rebinds = assigned and not isinstance(target, ast.Subscript)
                key, value = _key(target), _given(node, target)
                drains = isinstance(node, (ast.For, ast.AsyncFor)) and target is node.iter
                write = Write(
                    line, function, direction, key, attribute,
                    rebinds=rebinds, value=value, drains=drains,
                )  # fmt: skip
                found.append(write)
                break
    found += _through_aliases(filename, name)
    return sorted(found, key=lambda write: write.lineno)


def _given(node: ast.AST, target: ast.AST) -> str:
    """Return the constant or the name that a statement assigns to a target, as source."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign)):
        return ""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    plain = isinstance(node.value, (ast.Constant, ast.Name, ast.Attribute))
    return ast.unparse(node.value) if plain and node.value is not None and target in targets else ""


def gives(write: Write, found: str) -> int:
    """Return 1 where a statement gives what was found afterwards, -1 where another constant.

    Constants are those of Python, and names in capitals, as enumerations have.
    """
    last = write.value.rpartition(".")[2]
    if not write.value or not (last.isupper() or _is_constant(write.value)):
        return 0
    return 1 if found in {write.value, last} or found.endswith(f".{last}") else -1


def _is_constant(text: str) -> bool:
    return isinstance(ast.parse(text, mode="eval").body, ast.Constant)


def _through_aliases(filename: str, name: str) -> Iterator[Write]:
    """Yield the statements that change what a name stands for through another name of it."""
    known = set(aliases(filename, name))
    for function, owner in functions(filename):
        for alias in [each for scope, each in known if scope == function and each != name]:
            for node in own_nodes(owner):
                for target, direction in _targets(node, alias):
                    # ``table = ...`` gives the name to something else; ``table[n] = ...`` writes.
                    if isinstance(node, ast.Call) or isinstance(target, ast.Subscript):
                        line = getattr(node, "lineno", 0)
                        yield Write(line, function, direction, _key(target), alias=True)


def _key(target: ast.AST) -> str | None:
    return ast.unparse(target.slice) if isinstance(target, ast.Subscript) else None


def _targets(node: ast.AST, name: str) -> Iterator[tuple[ast.AST, Direction]]:
    """Yield what a statement writes of a name, and how."""
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in (part for each in targets for part in _flat(each)):
            if is_named(target, name):
                yield target, "grew" if isinstance(target, ast.Subscript) else "changed"
            elif isinstance(target, ast.Subscript) and says(target.slice, name):
                yield ast.Constant(name), "changed"  # vars(config)["name"] = ...
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        yield from (
            (part, "changed") for part in (*_flat(node.target), node.iter) if is_named(part, name)
        )
    elif isinstance(node, ast.Delete):
        yield from ((target, "shrank") for target in node.targets if is_named(target, name))
    elif isinstance(node, ast.Call):
        yield from _called_on(node, name)


def _called_on(node: ast.Call, name: str) -> Iterator[tuple[ast.AST, Direction]]:
    called = node.func
    given = [word.value for word in node.keywords if word.arg == "out"]
    if getattr(called, "attr", getattr(called, "id", "")) in _GIVEN:
        given += node.args[:1]
    yield from ((_without_items(part), "changed") for part in given if is_named(part, name))
    if isinstance(called, ast.Name):
        if called.id == "next" and node.args and is_named(node.args[0], name):
            yield node.args[0], "changed"
        elif called.id in {"setattr", "delattr"} and any(says(part, name) for part in node.args):
            yield ast.Constant(name), "changed"
    elif isinstance(called, ast.Attribute):
        direction = _METHODS.get(called.attr)
        if called.attr == "get" and not node.args:  # of a queue
            direction = "shrank"
        if direction is not None and is_named(called.value, name):
            yield _without_items(called.value), direction
        elif called.attr in _REGISTERS and node.args and says(node.args[0], name):
            yield ast.Constant(name), "grew"
        elif called.attr == "update" and any(word.arg == name for word in node.keywords):
            yield ast.Constant(name), "changed"  # vars(config).update(name=...)


def says(node: ast.AST, name: str) -> bool:
    """Return whether an expression is that very text."""
    return isinstance(node, ast.Constant) and node.value == name


def _without_items(node: ast.AST) -> ast.AST:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


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
