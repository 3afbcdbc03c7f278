"""Other names of a variable or attribute in a file: local variables and parameters.

After ``table = self.__dict__.setdefault("tables", {})`` the statement ``table[n] = ...`` writes
``self.tables`` and names only the local variable. A function that receives the object uses the name
of its parameter.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source.source_index import (
    functions,
    is_named,
    is_string,
    last_name,
    own_nodes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH: Final = 3  # from one name to the next
_BY_NAME: Final = frozenset({"setdefault", "get", "pop"})  # of a dictionary, with the name as key
_SAME: Final = frozenset({"enumerate", "zip", "iter", "reversed", "values", "items", "get"})


def aliases(filename: str, name: str) -> tuple[tuple[str, str], ...]:
    """Return pairs of function and local name that may refer to the same object as ``name``."""
    found: dict[tuple[str, str], None] = {}
    fresh: list[tuple[str | None, str]] = [(None, name)]
    for _ in range(MAX_DEPTH):
        reached = [pair for scope, known in fresh for pair in _one_step(filename, scope, known)]
        fresh = [(scope, known) for scope, known in reached if (scope, known) not in found]
        found.update(dict.fromkeys((scope, known) for scope, known in reached))
    return tuple(found)


def _one_step(filename: str, scope: str | None, name: str) -> Iterator[tuple[str, str]]:
    """Yield the names that are assigned from ``name``, in one function or (None) in all."""
    for function, owner in functions(filename):
        if scope is not None and function != scope:
            continue
        for node in own_nodes(owner):
            if isinstance(node, (ast.Assign, ast.NamedExpr)) and _gives(node.value, name):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [target.id for target in targets if isinstance(target, ast.Name)]
                yield from ((function, each) for each in names)
            elif isinstance(node, (ast.For, ast.comprehension)) and _gives(node.iter, name):
                yield from (
                    (function, part.id)
                    for part in ast.walk(node.target)
                    if isinstance(part, ast.Name)
                )
            elif isinstance(node, ast.Call):
                yield from _parameters(filename, node, name)


def _gives(value: ast.AST, name: str) -> bool:
    """Return whether an expression evaluates to the object of a name, or to an item of it."""
    if isinstance(value, ast.Call):
        return _call_gives(value, name)
    if isinstance(value, ast.BoolOp):
        return any(_gives(part, name) for part in value.values)
    if isinstance(value, ast.IfExp):
        return _gives(value.body, name) or _gives(value.orelse, name)
    if isinstance(value, (ast.Tuple, ast.List)):  # for each in (first, second): ...
        return any(_gives(part, name) for part in value.elts)
    # an entry of an instance's dictionary, by its name
    by_key = isinstance(value, ast.Subscript) and is_string(value.slice, name)
    return by_key or is_named(value, name)


def _call_gives(value: ast.Call, name: str) -> bool:
    called = value.func
    if isinstance(called, ast.Attribute):
        by_name = called.attr in _BY_NAME and bool(value.args) and is_string(value.args[0], name)
        return by_name or (called.attr in _SAME | {"setdefault"} and _gives(called.value, name))
    known = last_name(called)
    if known == "getattr":
        return len(value.args) > 1 and is_string(value.args[1], name)
    return known in _SAME and any(_gives(part, name) for part in value.args)


def _parameters(filename: str, call: ast.Call, name: str) -> Iterator[tuple[str, str]]:
    """Yield the parameters that receive the named object, in each function that may be called."""
    called = last_name(call.func)
    places = [index for index, part in enumerate(call.args) if is_named(part, name)]
    words = [word.arg for word in call.keywords if is_named(word.value, name)]
    if not (called and (places or words)):
        return
    for function, named in parameters(filename):
        if function.rpartition(".")[2] == called:
            yield from ((function, named[place]) for place in places if place < len(named))
            yield from ((function, word) for word in words if word is not None)


def parameters(filename: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each function of a file with its positional parameters, without ``self``."""
    for function, owner in functions(filename):
        if isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            named = [each.arg for each in (*owner.args.posonlyargs, *owner.args.args)]
            yield function, named[int(named[:1] in (["self"], ["cls"])) :]


def passed_as(filename: str, lineno: int, place: int, word: str) -> str:
    """Return the last name of what a call of ``checkpoint`` passes to the function it runs.

    Args:
        filename: where the call stands.
        lineno: one of its lines.
        place: the parameter's place, from 0.
        word: the parameter's name.

    Returns:
        "lengths" of ``checkpoint(net, x, batch.lengths)``, "" where no name is passed.
    """
    for _, owner in functions(filename):
        for node in own_nodes(owner):
            if not isinstance(node, ast.Call):
                continue
            if not node.lineno <= lineno <= (node.end_lineno or node.lineno):
                continue
            by_word = [part.value for part in node.keywords if part.arg == word]
            for part in (*by_word, *node.args[place + 1 : place + 2]):
                if len(node.args) > 1 or by_word:
                    return last_name(part)
    return ""
