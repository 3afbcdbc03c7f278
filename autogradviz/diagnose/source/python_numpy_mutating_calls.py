"""Calls of Python and NumPy functions that mutate their object or an argument.

``cache.append(x)``, ``heapq.heappush(cache, x)``, ``operator.setitem(cache, key, x)``,
``setattr(config, "mode", x)``; and bound methods passed as arguments: ``map(cache.append, xs)``.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autogradviz.diagnose.source.source_index import container, is_named, is_string, last_name

if TYPE_CHECKING:
    from collections.abc import Iterator

Direction: TypeAlias = Literal["grew", "shrank", "changed"]
Written: TypeAlias = tuple[ast.AST, Direction]  # the written expression, and how

METHODS: Final[dict[str, Direction]] = {
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
            "__next__",
            "shuffle",
        ),
        "changed",
    ),
}

_GIVEN: Final = {
    "shuffle", "heappush", "heappop", "heapify", "heapreplace", "heappushpop", "insort",
    "insort_left", "insort_right", "copyto", "put", "put_along_axis", "putmask", "place",
    "fill_diagonal", "at", "setitem", "delitem", "iadd", "iconcat", "ior",
}  # fmt: skip
"""Functions of Python and NumPy that write their first argument."""
_REGISTERS: Final = frozenset(
    {"register_buffer", "register_parameter", "register_module", "add_module", "__setattr__"}
)
"""Methods of ``nn.Module`` that take the name of an attribute."""

_BY_NAME: Final = frozenset({"setattr", "delattr", "setitem", "delitem"})
CONSUMERS: Final = frozenset({"next", "islice", "zip", "takewhile"})
"""Functions that consume items of an iterator."""
_TYPES: Final = frozenset(
    {"list", "dict", "set", "deque", "OrderedDict", "Counter", "bytearray", "object", "Module"}
)
"""Types whose methods are called as functions: ``list.append(cache, x)``."""


def written_by_call(node: ast.Call, name: str) -> Iterator[Written]:
    """Yield the expressions of that name which a call writes."""
    called, given = _unwrapped(node)
    yield from ((container(word.value), "changed") for word in node.keywords
                if word.arg == "out" and is_named(word.value, name))  # fmt: skip
    yield from _written_arguments(called, given, name)
    if isinstance(called, ast.Attribute):
        yield from _method(called, node, name)
    for part in node.args:  # a bound method as argument
        if isinstance(part, ast.Attribute) and part.attr in METHODS and is_named(part.value, name):
            yield container(part.value), METHODS[part.attr]


def _unwrapped(node: ast.Call) -> tuple[ast.expr, list[ast.expr]]:
    """Return callee and arguments; for ``partial(f, x)`` those of the later call."""
    if last_name(node.func) in {"partial", "submit", "Thread"} and node.args:
        return node.args[0], node.args[1:]
    return node.func, node.args


def _written_arguments(called: ast.expr, given: list[ast.expr], name: str) -> Iterator[Written]:
    """Yield the arguments that a function of Python or NumPy writes."""
    known = last_name(called)
    if not given:
        return
    if known in _GIVEN and is_named(given[0], name):
        yield container(given[0]), "changed"
    elif known in _BY_NAME and any(is_string(part, name) for part in given):
        yield ast.Constant(name), "changed"
    elif known in CONSUMERS:
        yield from ((part, "changed") for part in given if is_named(part, name))
    elif isinstance(called, ast.Attribute) and last_name(called.value) in _TYPES:
        direction = METHODS.get(known)  # list.append(cache, x)
        if direction is not None and is_named(given[0], name):
            yield container(given[0]), direction


def _method(called: ast.Attribute, node: ast.Call, name: str) -> Iterator[Written]:
    direction = METHODS.get(called.attr)
    if called.attr == "get" and _is_queue_get(node):
        direction = "shrank"
    if direction is not None and is_named(called.value, name):
        yield container(called.value), direction
    elif called.attr in _REGISTERS and any(is_string(part, name) for part in node.args[:2]):
        yield ast.Constant(name), "grew"
    elif called.attr == "update" and any(word.arg == name for word in node.keywords):
        yield ast.Constant(name), "changed"  # vars(config).update(name=...)


def _is_queue_get(node: ast.Call) -> bool:
    """Return whether a call of ``get`` has no key, so that its object is a queue."""
    return not node.args and all(word.arg in {"block", "timeout"} for word in node.keywords)
