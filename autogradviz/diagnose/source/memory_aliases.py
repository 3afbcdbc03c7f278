"""Which line may have written a tensor's memory past PyTorch, read from the source.

NumPy arrays, storages, buffers and addresses share a tensor's memory. What is known by a name
that shares it is followed through assignments and calls; what writes such a name is told.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source import index as source

if TYPE_CHECKING:
    from collections.abc import Iterator

_TAKEN: Final = frozenset(
    {"from_numpy", "as_tensor", "frombuffer", "from_dlpack", "asarray", "from_address"}
)
"""What is given to these shares its memory with what they return."""

_WRAPS: Final = frozenset({"from_numpy", "from_dlpack", "frombuffer", "from_address"})
"""What these return never has memory of its own."""

_SHARES: Final = frozenset({"numpy", "data_ptr", "untyped_storage", "storage", "__array__"})
"""What these methods return shares the tensor's memory."""

_HOLDS: Final = frozenset({"list", "tuple", "dict", "iter", "nditer"})
"""What these return holds what it is given."""

_COPIES: Final = frozenset({"copy", "clone", "tolist", "item", "astype", "size", "nbytes", "numel"})
_WRITERS: Final = frozenset(
    {"fill", "put", "sort", "partition", "itemset", "setfield", "copyto", "memset", "memmove",
     "fill_", "copy_", "resize_", "readinto", "recv_into", "pack_into", "place", "putmask",
     "shuffle", "fill_diagonal", "put_along_axis", "byteswap"}
)  # fmt: skip
_ROUNDS: Final = 4  # assignments and calls followed


def raw_writes(filename: str) -> list[tuple[int, str]]:
    """Return line and function of the statements that write memory shared with tensors."""
    shared = _shared_names(filename)
    found = {
        (getattr(node, "lineno", 0), function)
        for function, node in _statements(filename)
        if _writes(node, shared)
    }
    return sorted(found) or sorted(_given_away(filename, shared))


def _statements(filename: str) -> Iterator[tuple[str, ast.AST]]:
    for function, owner in source.functions(filename):
        for node in source.own_nodes(owner):
            yield function, node


def _shared_names(filename: str) -> set[str]:
    """Return the names of variables, attributes and parameters that share a tensor's memory."""
    names: set[str] = set()
    parameters = {
        function.rpartition(".")[2]: [argument.arg for argument in owner.args.args]
        for function, owner in source.functions(filename)
        if isinstance(owner, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    returned = _returned(filename)
    for _ in range(_ROUNDS):
        before = len(names)
        names |= {f"{name}()" for name, values in returned.items()
                  if any(_shares(value, names) for value in values)}  # fmt: skip
        for _, node in _statements(filename):
            if isinstance(node, ast.Assign):
                names |= {
                    name
                    for target in node.targets
                    for part, value in _apart(target, node.value)
                    if (name := _name(part)) and _shares(value, names)
                }
                names |= {
                    name
                    for target in node.targets
                    for part, value in _paired(target, node.value, returned)
                    if _name(part) in names
                    for name in _held(value)
                }
            elif isinstance(node, (ast.For, ast.comprehension)):
                names |= _looped(node.target, node.iter, names)
            elif isinstance(node, ast.NamedExpr) and _shares(node.value, names):
                names |= {_name(node.target)} - {""}
            elif isinstance(node, ast.withitem) and _shares(node.context_expr, names):
                names |= {_name(node.optional_vars)} - {""}
            elif isinstance(node, ast.Call):
                names |= _taken(node)
                known = parameters.get(_name(node.func), [])
                known = known[1:] if known[:1] == ["self"] else known
                names |= {p for p, a in zip(known, node.args, strict=False) if _shares(a, names)}
        if len(names) == before:
            break
    return names


def _returned(filename: str) -> dict[str, list[ast.expr]]:
    """Return what each function may return, by its last name; calls are followed no further."""
    found: dict[str, list[ast.expr]] = {}
    for function, node in _statements(filename):
        if isinstance(node, ast.Return) and node.value is not None:
            found.setdefault(function.rpartition(".")[2], []).append(node.value)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            for target in node.targets:
                found.setdefault(_name(target), []).append(node.value.body)
    return found


def _paired(
    target: ast.expr, value: ast.expr, returned: dict[str, list[ast.expr]], depth: int = 0
) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what is assigned to what, through tuples and the functions that are called."""
    if isinstance(value, ast.Call) and depth < _ROUNDS:
        for inner in returned.get(_name(value.func), ()):
            yield from _paired(target, inner, returned, depth + 1)
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for part, given in zip(target.elts, value.elts, strict=False):
            yield from _paired(part, given, returned, depth)
    else:
        yield target, value


def _apart(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """Return what an assignment gives to what: part by part where tuples stand on both sides."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return list(zip(target.elts, value.elts, strict=False))
    return [(target, value)]


def _held(value: ast.expr) -> set[str]:
    """Return the names that an expression may stand for."""
    if isinstance(value, ast.IfExp):
        return _held(value.body) | _held(value.orelse)
    if isinstance(value, ast.Subscript):
        return _held(value.value)
    return {_name(value)} - {""}


def _looped(target: ast.expr, over: ast.expr, names: set[str]) -> set[str]:
    """Return the variables of a loop that are rows of shared memory."""
    if isinstance(over, ast.Call) and isinstance(target, ast.Tuple):
        places = {"zip": over.args, "enumerate": [ast.Constant(value=0), *over.args[:1]]}
        given = places.get(_name(over.func), [])
        pairs = zip(target.elts, given, strict=False)
        return {_name(part) for part, value in pairs if _shares(value, names)} - {""}
    return {_name(target)} - {""} if _shares(over, names) else set()


def _taken(node: ast.Call) -> set[str]:
    if _name(node.func) not in _TAKEN or not node.args:
        return set()
    return _held(node.args[0])


def _shares(node: ast.AST, names: set[str]) -> bool:
    """Return whether an expression's value shares memory with a name, or with a tensor."""
    if isinstance(node, ast.Call):
        return _call_shares(node, names)
    if isinstance(node, (ast.Dict, ast.List, ast.Tuple)):
        return any(_shares(part, names) for part in ast.iter_child_nodes(node))
    if isinstance(node, ast.IfExp):
        return _shares(node.body, names) or _shares(node.orelse, names)
    if isinstance(node, ast.Subscript) or (
        isinstance(node, ast.Attribute) and node.attr not in names
    ):
        return _shares(node.value, names)
    return _name(node) in names


def _call_shares(node: ast.Call, names: set[str]) -> bool:
    called = _name(node.func)
    if called in _COPIES:
        return False
    method = isinstance(node.func, ast.Attribute)
    if called in _WRAPS or f"{called}()" in names or (called in _SHARES and method):
        return True
    if called == "asarray" and any(_is_alias(argument) for argument in node.args):
        return True
    inner = node.func.value if isinstance(node.func, ast.Attribute) else None
    given = [*node.args, *[word.value for word in node.keywords]]
    return (inner is not None and _shares(inner, names)) or (
        called in _TAKEN | _HOLDS | {"cast", "as_array", "memoryview", "reshape", "ravel", "view"}
        and any(_shares(argument, names) for argument in given)
    )


def _is_alias(node: ast.expr) -> bool:
    """Return whether an expression is a tensor's ``detach()`` or ``.data``."""
    called = node.func if isinstance(node, ast.Call) else node
    return isinstance(called, ast.Attribute) and called.attr in {"detach", "data"}


def _writes(node: ast.AST, shared: set[str]) -> bool:
    if isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(
            _shares(target.value if isinstance(target, ast.Subscript) else target, shared)
            for target in targets
            if isinstance(target, ast.Subscript) or isinstance(node, ast.AugAssign)
        )
    if not isinstance(node, ast.Call):
        return False
    if any(word.arg == "out" and _shares(word.value, shared) for word in node.keywords):
        return True
    name = _name(node.func)
    in_place = name in _WRITERS or (name.endswith("_") and not name.endswith("__"))
    if not in_place and not ast.unparse(node.func).endswith(".at"):
        return False
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    return any(_shares(part, shared) for part in (owner, *node.args[:2]) if part is not None)


def _given_away(filename: str, shared: set[str]) -> set[tuple[int, str]]:
    """Return the calls that are given memory and whose own source is not there to be read."""
    known = {function.rpartition(".")[2] for function, _ in source.functions(filename)}
    return {
        (node.lineno, function)
        for function, node in _statements(filename)
        if isinstance(node, ast.Call)
        and _name(node.func) not in known | _TAKEN | _SHARES | _COPIES
        and any(_shares(argument, shared) for argument in node.args)
    }


def _name(node: ast.AST | None) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""
