"""Statements that write an attribute or an item without naming it.

``self["mode"] = ...`` names only the key, ``setattr(config, key, value)`` names nothing, and
``log.setLevel(...)`` calls a setter of a library.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source.name_writes import Write
from autogradviz.diagnose.source.source_index import is_named, is_string, nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.source.python_numpy_mutating_calls import Direction

_SETTERS: Final = frozenset({"setattr", "delattr", "__setattr__"})
_TABLES: Final = frozenset({"_parameters", "_buffers", "_modules", "__dict__"})
_BY_KEY: Final[dict[str, Direction]] = {"pop": "shrank", "setdefault": "grew"}


def indirect_writes(filename: str, name: str, key: str | None) -> list[Write]:
    """Return the statements that may write an attribute or an item indirectly.

    Args:
        filename: the file.
        name: the attribute or variable.
        key: the key of an item as in source, ``"'mode'"``; None for an attribute. Only string keys
            are searched: numbers are too common.
    """
    word = ast.literal_eval(key) if key is not None and key[:1] in {"'", '"'} else None
    return [
        Write(getattr(node, "lineno", 0), function, direction, key, indirect=True)
        for function, node in nodes(filename)
        for direction in _directions(node, name, word)
    ]


def _directions(node: ast.AST, name: str, key: str | None) -> Iterator[Direction]:
    if isinstance(node, ast.Call):
        yield from _called(node, name, key)
    elif isinstance(node, (ast.Assign, ast.AugAssign, ast.Delete)):
        targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
        if key is not None and any(
            isinstance(target, ast.Subscript) and is_string(target.slice, key) for target in targets
        ):
            yield "shrank" if isinstance(node, ast.Delete) else "grew"
        elif any(_into_table(target, name) for target in targets) or (
            isinstance(node, ast.AugAssign)
            and getattr(node.target, "attr", "") == "__dict__"
            and _may_hold(node.value, name)
        ):
            yield "changed"


def _into_table(target: ast.AST, name: str) -> bool:
    """Return whether an item of a module's tables is set: ``module._parameters[n] = ...``."""
    if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Attribute):
        return False
    known = isinstance(target.slice, ast.Constant) and not is_string(target.slice, name)
    return target.value.attr in _TABLES and not known


def _called(node: ast.Call, name: str, key: str | None) -> Iterator[Direction]:
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if called in _SETTERS:
        if len(node.args) > 1 and not isinstance(node.args[1], ast.Constant):
            yield "changed"  # the name is known only at run time
    elif called == "__init__" and isinstance(node.func, ast.Attribute):
        if not isinstance(node.func.value, ast.Call):  # super().__init__() runs during construction
            yield "changed"
    elif called == "update":
        if _updates(node, name, key):
            yield "grew"
    elif called.lower().replace("_", "") == f"set{name.lower().replace('_', '')}":
        yield "changed"
    elif called in _BY_KEY and key is not None and node.args and is_string(node.args[0], key):
        yield _BY_KEY[called]


def _updates(node: ast.Call, name: str, key: str | None) -> bool:
    """Return whether a call of ``update`` may write the item or the attribute."""
    if key is not None and any(word.arg == key for word in node.keywords):
        return True
    given = [*node.args, *[word.value for word in node.keywords if word.arg is None]]
    called = ast.unparse(node.func)
    if key is None and not ("__dict__" in called or called.startswith("vars(")):
        return False
    return any(_may_hold(part, key or name) for part in given)


def _may_hold(given: ast.expr, key: str) -> bool:
    """Return whether a dictionary expression may contain a key; a display shows its keys."""
    if isinstance(given, ast.Dict) and all(isinstance(each, ast.Constant) for each in given.keys):
        return any(each is not None and is_string(each, key) for each in given.keys)
    return not is_named(given, "self")
