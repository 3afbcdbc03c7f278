"""What other threads may write, read from the source: their operators are not recorded."""

from __future__ import annotations

import ast
from typing import Final

from autogradviz.diagnose.code import source

_STARTERS: Final = frozenset(
    {"Thread", "Timer", "Process", "submit", "run_in_executor", "to_thread", "apply_async",
     "start_new_thread"}
)  # fmt: skip
_DEPTH: Final = 4  # calls followed by name
_LAST: Final = 1 << 30


def writes_in_threads(filename: str) -> list[tuple[int, str]]:
    """Return line and function of in-place writes in what a file runs in other threads."""
    return sorted(
        (getattr(node, "lineno", 0), function)
        for function, owner in source.functions(filename)
        if function.rpartition(".")[2] in _run_in_threads(filename)
        for node in source.own_nodes(owner)
        if _writes(node)
    )


def _run_in_threads(filename: str) -> set[str]:
    """Return the last names of what a file hands to threads, and of what that calls."""
    fresh = {
        name
        for _, owner in source.functions(filename)
        for node in source.own_nodes(owner)
        if isinstance(node, ast.Call) and source.last_name(node.func) in _STARTERS
        for part in (*node.args, *[word.value for word in node.keywords])
        if (name := source.last_name(part))
    }
    fresh |= {
        "run" for _, owner in source.functions(filename) for node in source.own_nodes(owner)
        if isinstance(node, ast.Attribute) and node.attr == "start" and "run" in _methods(filename)
    }  # fmt: skip
    names: set[str] = set()
    for _ in range(_DEPTH):
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


def _writes(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        in_place = name.endswith("_") and not name.endswith("__")
        return in_place or any(word.arg == "out" for word in node.keywords)
    if isinstance(node, ast.AugAssign):
        return not isinstance(node.value, ast.Constant) or isinstance(node.target, ast.Subscript)
    return isinstance(node, ast.Assign) and any(isinstance(t, ast.Subscript) for t in node.targets)
