"""Names of functions: those that users pass, and those that code objects have."""

from __future__ import annotations

import ast
from functools import lru_cache, partial
from types import MethodType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from autogradviz.support.source_lines_and_libraries import parse

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType


# --- qualified names of functions, which code objects have from Python 3.11 on --------------------


_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_MODULE: Final = "<module>"


class _Scope(NamedTuple):
    """A function or class."""

    first: int  # line, that of the first decorator if there is one
    last: int
    name: str  # qualified
    prefix: str  # of the names of what is in it


def qualified_name(code: CodeType, source: Sequence[str]) -> str:
    """Return "Net.forward" for the code of a method.

    Before Python 3.11 it is read from the source, if there is any.

    Args:
        code: of a function.
        source: the lines of its file.
    """
    known: str | None = getattr(code, "co_qualname", None)
    return name_in_source(code, tuple(source)) if known is None else known


def name_in_source(code: CodeType, source: tuple[str, ...]) -> str:
    """Return the qualified name of a code object, from the source of its file."""
    name, line = code.co_name, code.co_firstlineno
    if name == _MODULE:
        return name
    around = [each for each in _scopes(source) if each.first <= line <= each.last]
    own = [each for each in around if each.first == line and each.name.rpartition(".")[2] == name]
    if own:
        return own[-1].name
    return f"{around[-1].prefix}{name}" if around else name


@lru_cache(maxsize=16)
def _scopes(source: tuple[str, ...]) -> tuple[_Scope, ...]:
    """Return the functions and classes of a file, each before those in it."""
    try:
        tree = parse("".join(source))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    found: list[_Scope] = []
    waiting: list[tuple[str, ast.AST]] = [("", tree)]
    while waiting:
        prefix, node = waiting.pop()
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            lines = [node.lineno, *(each.lineno for each in node.decorator_list)]
            name = f"{prefix}{node.name}"
            prefix = f"{name}.<locals>." if isinstance(node, _FUNCTIONS) else f"{name}."
            found.append(_Scope(min(lines), node.end_lineno or node.lineno, name, prefix))
        waiting += [(prefix, child) for child in ast.iter_child_nodes(node)]
    return tuple(sorted(found, key=lambda each: (each.first, -each.last, len(each.name))))


# --- names of functions that users pass: to checkpoint, as hooks ----------------------------------


def function_name(function: Any) -> str:
    """Return the name of a callable in its source."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, torch.nn.Module):
        return f"{type(function).__name__}.forward"
    if type(function) is MethodType:
        function = function.__func__
    try:
        # Past a ``__getattr__`` of the user's own, which would run.
        return str(object.__getattribute__(function, "__qualname__"))
    except AttributeError:
        return type(function).__name__


def hook_name(hook: Any) -> str:
    """Return the name of a hook in its source."""
    while isinstance(hook, partial):
        hook = hook.func
    name = getattr(hook, "__qualname__", None)
    return str(name) if isinstance(name, str) else f"{type(hook).__qualname__}.__call__"
