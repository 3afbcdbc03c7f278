"""Which line writes an attribute, opens a context, draws a random number: read from the source.

The source is read from disk where it still is, and only files that the recording saw as the
user's own. Nothing is run.
"""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autogradviz.model import SourceLocation

if TYPE_CHECKING:
    from collections.abc import Iterator

Direction: TypeAlias = Literal["grew", "shrank", "changed"]

_GROWS: Final = frozenset(
    {"append", "appendleft", "extend", "add", "insert", "update", "setdefault"}
)
_SHRINKS: Final = frozenset({"pop", "popleft", "popitem", "clear", "remove", "discard"})
_OTHERS: Final = frozenset({"sort", "reverse", "rotate", "fill", "set"})


@dataclass(frozen=True, slots=True)
class Write:
    """One statement that writes a name."""

    lineno: int
    function: str  # qualified
    direction: Direction


@cache
def _tree(filename: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return None


def location(filename: str, lineno: int, function: str) -> SourceLocation:
    """Return a place in a file, with its text."""
    text = linecache.getline(filename, lineno).strip()
    return SourceLocation(filename=filename, lineno=lineno, function=function, text=text)


def functions(filename: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield every function of a file with its qualified name, and the module itself as ""."""
    tree = _tree(filename)
    if tree is None:
        return
    stack: list[tuple[str, ast.AST]] = [("", tree)]
    while stack:
        name, owner = stack.pop()
        if not isinstance(owner, ast.ClassDef):
            yield name, owner
        for child in _below(owner):
            inner = child.name  # type: ignore[attr-defined]
            local = ".<locals>" if isinstance(owner, _FUNCTIONS) else ""
            stack.append((f"{name}{local}.{inner}".lstrip("."), child))


_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES: Final = (*_FUNCTIONS, ast.ClassDef)


def _below(owner: ast.AST) -> Iterator[ast.AST]:
    """Yield the functions and classes directly inside a scope."""
    queue = list(ast.iter_child_nodes(owner))
    while queue:
        node = queue.pop()
        if isinstance(node, _SCOPES):
            yield node
        else:
            queue.extend(ast.iter_child_nodes(node))


def own_nodes(owner: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of one scope, not of the functions inside it, in no order."""
    queue = list(ast.iter_child_nodes(owner))
    while queue:
        node = queue.pop()
        if not isinstance(node, _SCOPES):
            yield node
            queue.extend(ast.iter_child_nodes(node))


def names_in(filename: str, function: str) -> set[str]:
    """Return every name and attribute that a function mentions."""
    found: set[str] = set()
    for name, owner in functions(filename):
        if name == function or name.rpartition(".")[2] == function:
            for node in own_nodes(owner):
                if isinstance(node, ast.Name):
                    found.add(node.id)
                elif isinstance(node, ast.Attribute):
                    found.add(node.attr)
    return found


def is_generator(filename: str, function: str) -> bool:
    """Return whether a function yields, as those of ``contextlib.contextmanager`` do."""
    return any(
        isinstance(node, ast.Yield)
        for name, owner in functions(filename)
        if name == function and name
        for node in own_nodes(owner)
    )


def writes(filename: str, name: str) -> list[Write]:
    """Return the statements of a file that write a variable or an attribute of that name."""
    found = [
        Write(node.lineno, function, direction)  # type: ignore[attr-defined]
        for function, owner in functions(filename)
        for node in own_nodes(owner)
        if (direction := _writes_name(node, name)) is not None
    ]
    return sorted(found, key=lambda write: write.lineno)


def _writes_name(node: ast.AST, name: str) -> Direction | None:
    direction: Direction | None = None
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        flat = [part for target in targets for part in _flat(target)]
        if any(isinstance(t, ast.Subscript) and _is(t.value, name) for t in flat):
            direction = "grew"
        elif any(_is(target, name) for target in flat):
            direction = "changed"
    elif isinstance(node, ast.Delete):
        if any(isinstance(t, ast.Subscript) and _is(t.value, name) for t in node.targets):
            direction = "shrank"
    elif isinstance(node, ast.Call):
        direction = _call_writes(node, name)
    return direction


def _call_writes(node: ast.Call, name: str) -> Direction | None:
    called = node.func
    if isinstance(called, ast.Name) and called.id == "next" and node.args:
        return "changed" if _is(node.args[0], name) else None
    if not isinstance(called, ast.Attribute) or not _is(called.value, name):
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


def _is(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Subscript):  # self.cache[layer].append(x)
        return _is(node.value, name)
    return (isinstance(node, ast.Attribute) and node.attr == name) or (
        isinstance(node, ast.Name) and node.id == name
    )


def calls(filename: str, words: tuple[str, ...]) -> list[tuple[int, str, str]]:
    """Return line, function and text of calls whose dotted name holds one of some words."""
    found = []
    for function, owner in functions(filename):
        for node in own_nodes(owner):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if any(word in called for word in words):
                    found.append((node.lineno, function, called))
    return sorted(found)


def enclosing_withs(filename: str, lineno: int) -> list[tuple[int, str]]:
    """Return line and text of the ``with`` items around a line, the innermost first."""
    tree = _tree(filename)
    if tree is None:
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            first, last = node.body[0].lineno, node.end_lineno or node.lineno
            if first <= lineno <= last or node.lineno == lineno:
                found += [(item.context_expr.lineno, ast.unparse(item.context_expr))
                          for item in node.items]  # fmt: skip
    return sorted(found, reverse=True)
