"""Writes in other threads, found in the source: ops of other threads are not recorded."""

from __future__ import annotations

import ast
from typing import Final

from autogradviz.diagnose.source import source_index as source

_STARTERS: Final = frozenset(
    {"Thread", "Timer", "Process", "submit", "run_in_executor", "to_thread", "apply_async",
     "start_new_thread"}
)  # fmt: skip
_DEPTH: Final = 4  # calls followed by name
_LAST: Final = 1 << 30


def writes_in_threads(filename: str) -> list[tuple[int, str]]:
    """Return line and function of the in-place writes in functions that run in other threads."""
    started = _callees(
        filename,
        {
            name
            for _, node in source.nodes(filename)
            if isinstance(node, ast.Call)
            for name in _thread_targets(node)
        },
    )
    return sorted(
        (getattr(node, "lineno", 0), function)
        for function, node in source.nodes(filename)
        if function.rpartition(".")[2] in started and _writes(node)
    )


def thread_dispatches(filename: str, wanted: str) -> list[tuple[int, str]]:
    """Return line and function of the calls that run ``wanted`` in another thread."""
    return sorted(
        (node.lineno, function)
        for function, node in source.nodes(filename)
        if isinstance(node, ast.Call) and wanted in _callees(filename, _thread_targets(node))
    )


def _thread_targets(call: ast.Call) -> set[str]:
    """Return the last names of the functions that one call runs in another thread."""
    if source.last_name(call.func) not in _STARTERS:
        return set()
    parts = (*call.args, *[word.value for word in call.keywords])
    called = {source.last_name(part.func) for part in parts if isinstance(part, ast.Call)}
    inside = {name for part in parts if isinstance(part, ast.Lambda)
              for node in ast.walk(part) if (name := source.last_name(node))}  # fmt: skip
    return ({source.last_name(part) for part in parts} | called | inside) - {""}


def _callees(filename: str, new: set[str]) -> set[str]:
    """Return names of functions, and of the functions that they call, directly or indirectly."""
    names: set[str] = set()
    for _ in range(_DEPTH if new else 0):
        names |= new
        new = {
            inner
            for function, _ in source.functions(filename)
            if function and function.rpartition(".")[2] in new
            for inner in source.called_names(filename, function, 0, _LAST)
        } - names
    return names


def _writes(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        in_place = name.endswith("_") and not name.endswith("__")
        return in_place or any(word.arg in {"out", "inplace"} for word in node.keywords)
    if isinstance(node, ast.AugAssign):
        counter = isinstance(node.target, ast.Name) and isinstance(node.value, ast.Constant)
        return not counter
    if not isinstance(node, ast.Assign):
        return False
    parts = [part for t in node.targets for part in getattr(t, "elts", [t])]
    return any(isinstance(part, ast.Subscript) for part in parts)
