"""Writes in other threads, found in the source: ops of other threads are not recorded."""

from __future__ import annotations

import ast
from typing import Final

from autogradviz.diagnose.source import index as source

_STARTERS: Final = frozenset(
    {"Thread", "Timer", "Process", "submit", "run_in_executor", "to_thread", "apply_async",
     "start_new_thread"}
)  # fmt: skip
_DEPTH: Final = 4  # calls followed by name
_LAST: Final = 1 << 30


def writes_in_threads(filename: str) -> list[tuple[int, str]]:
    """Return line and function of the in-place writes in functions that run in other threads."""
    return sorted(
        (getattr(node, "lineno", 0), function)
        for function, owner in source.functions(filename)
        if function.rpartition(".")[2] in _run_in_threads(filename)
        for node in source.own_nodes(owner)
        if _writes(node, _parameters(owner))
    )


def thread_dispatches(filename: str, wanted: str) -> list[tuple[int, str]]:
    """Return line and function of the calls that run ``wanted`` in another thread."""
    return sorted(
        (node.lineno, function)
        for function, node in source.nodes(filename)
        if isinstance(node, ast.Call)
        and wanted in _reached(filename, _thread_targets(filename, node))
    )


def _thread_targets(filename: str, call: ast.Call) -> set[str]:
    """Return the last names of the functions that one call runs in another thread."""
    name = source.last_name(call.func)
    if name == "start" and "run" in _methods(filename):
        return {"run"}
    if name not in _STARTERS:
        return set()
    parts = (*call.args, *[word.value for word in call.keywords])
    called = {source.last_name(part.func) for part in parts if isinstance(part, ast.Call)}
    inside = {name for part in parts if isinstance(part, ast.Lambda)
              for node in ast.walk(part) if (name := source.last_name(node))}  # fmt: skip
    return {source.last_name(part) for part in parts} | called | inside


def _run_in_threads(filename: str) -> set[str]:
    """Return the last names of the functions that a file runs in threads, and of their callees."""
    fresh = {
        name
        for _, node in source.nodes(filename)
        if isinstance(node, ast.Call) and source.last_name(node.func) in _STARTERS
        for part in (*node.args, *[word.value for word in node.keywords])
        if (name := source.last_name(part))
    }
    fresh |= {
        "run" for _, node in source.nodes(filename)
        if isinstance(node, ast.Attribute) and node.attr == "start" and "run" in _methods(filename)
    }  # fmt: skip
    return _reached(filename, fresh)


def _reached(filename: str, fresh: set[str]) -> set[str]:
    """Return names of functions, and those of the functions that they call in turn."""
    names: set[str] = set()
    for _ in range(_DEPTH if fresh else 0):
        names |= fresh
        fresh = {
            inner
            for function, _ in source.functions(filename)
            if function and function.rpartition(".")[2] in fresh
            for inner in source.called_names(filename, function, 0, _LAST)
        } - names
    return names


def _methods(filename: str) -> set[str]:
    return {function.rpartition(".")[2] for function, _ in source.functions(filename)}


def _parameters(owner: ast.AST) -> set[str]:
    given = getattr(owner, "args", None)
    return {each.arg for each in given.args} if isinstance(given, ast.arguments) else set()


def _writes(node: ast.AST, given: set[str]) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        in_place = name.endswith("_") and not name.endswith("__")
        return in_place or any(word.arg in {"out", "inplace"} for word in node.keywords)
    if isinstance(node, ast.AugAssign):
        own = isinstance(node.target, ast.Name) and node.target.id not in given
        return not (own and isinstance(node.value, ast.Constant))  # a local counter
    if not isinstance(node, ast.Assign):
        return False
    parts = [part for t in node.targets for part in getattr(t, "elts", [t])]
    return any(isinstance(part, ast.Subscript) for part in parts)
