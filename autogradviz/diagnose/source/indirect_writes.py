"""Statements that write something without saying its name.

``self["mode"] = ...`` names the key alone, ``setattr(config, key, value)`` not even that, and
``log.setLevel(...)`` calls a method that a library wrote.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source.index import functions, is_named, own_nodes, says
from autogradviz.diagnose.source.writes import Write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.source.mutating_calls import Direction

_SETTERS: Final = frozenset({"setattr", "delattr", "__setattr__"})
_TABLES: Final = frozenset({"_parameters", "_buffers", "_modules", "__dict__"})
_BY_KEY: Final[dict[str, Direction]] = {"pop": "shrank", "setdefault": "grew"}


def unnamed_writes(filename: str, name: str, key: str | None) -> list[Write]:
    """Return the statements that may write what a name and a key stand for.

    Args:
        filename: where to look.
        name: the attribute's or variable's name.
        key: of an item, as source, ``"'mode'"``; None where it is no item. Only strings are
            looked for: numbers say too little.
    """
    word = ast.literal_eval(key) if key is not None and key[:1] in {"'", '"'} else None
    own = {function.rpartition(".")[2].lower() for function, _ in functions(filename)}
    return [
        Write(getattr(node, "lineno", 0), function, direction, key, unnamed=True)
        for function, owner in functions(filename)
        for node in own_nodes(owner)
        if not _calls_one(node, own)  # the file's own function shows what it writes
        for direction in _directions(node, name, word)
    ]


def _calls_one(node: ast.AST, names: set[str]) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    return called.lower() in names and called.lower().startswith("set")


def _directions(node: ast.AST, name: str, key: str | None) -> Iterator[Direction]:
    if isinstance(node, ast.Call):
        yield from _called(node, name, key)
    elif isinstance(node, (ast.Assign, ast.AugAssign, ast.Delete)):
        targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
        if key is not None and any(
            isinstance(target, ast.Subscript) and says(target.slice, key) for target in targets
        ):
            yield "shrank" if isinstance(node, ast.Delete) else "grew"
        elif any(_into_table(target, name) for target in targets) or (
            isinstance(node, ast.AugAssign)
            and getattr(node.target, "attr", "") == "__dict__"
            and _may_hold(node.value, name)
        ):
            yield "changed"


def _into_table(target: ast.AST, name: str) -> bool:
    """Return whether an item of a module's own tables is set: ``module._parameters[n] = ...``."""
    if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Attribute):
        return False
    known = isinstance(target.slice, ast.Constant) and not says(target.slice, name)
    return target.value.attr in _TABLES and not known


def _called(node: ast.Call, name: str, key: str | None) -> Iterator[Direction]:
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if called in _SETTERS:
        if len(node.args) > 1 and not isinstance(node.args[1], ast.Constant):
            yield "changed"  # a name that is known when it runs
    elif called == "__init__" and isinstance(node.func, ast.Attribute):
        if not isinstance(node.func.value, ast.Call):  # of super(): not once more
            yield "changed"
    elif called == "update":
        if _updates(node, name, key):
            yield "grew"
    elif called.lower().replace("_", "") == f"set{name.lower().replace('_', '')}":
        yield "changed"
    elif called in _BY_KEY and key is not None and node.args and says(node.args[0], key):
        yield _BY_KEY[called]


def _updates(node: ast.Call, name: str, key: str | None) -> bool:
    """Return whether a call of ``update`` may write an item of that key, or an attribute."""
    if key is not None and any(word.arg == key for word in node.keywords):
        return True
    given = [*node.args, *[word.value for word in node.keywords if word.arg is None]]
    whole = ast.unparse(node.func)
    if key is None and not ("__dict__" in whole or whole.startswith("vars(")):
        return False
    return any(_may_hold(part, key or name) for part in given)


def _may_hold(given: ast.expr, key: str) -> bool:
    """Return whether a dictionary may have a key: one that is written out shows its keys."""
    if isinstance(given, ast.Dict) and all(isinstance(each, ast.Constant) for each in given.keys):
        return any(each is not None and says(each, key) for each in given.keys)
    return not is_named(given, "self")
