"""Lines that may write a tensor's memory without PyTorch, found in the source.

NumPy arrays, storages, buffers and addresses share a tensor's memory. Names that share it are
followed through assignments and calls; statements that write through such a name are returned.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.source import source_index as source

if TYPE_CHECKING:
    from collections.abc import Iterator

_TAKEN: Final = frozenset(
    {"from_numpy", "as_tensor", "frombuffer", "from_dlpack", "asarray", "from_address"}
)
"""Functions whose result shares memory with their argument."""

_WRAPS: Final = frozenset({"from_numpy", "from_dlpack", "frombuffer", "from_address"})
"""Functions whose result never owns its memory."""

_SHARES: Final = frozenset({"numpy", "data_ptr", "untyped_storage", "storage", "__array__"})
"""Methods whose result shares the tensor's memory."""

_HOLDS: Final = frozenset({"list", "tuple", "dict", "iter", "nditer"})
"""Functions whose result contains their arguments."""

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
        for function, node in source.nodes(filename)
        if _writes(node, shared)
    }
    return sorted(found)


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
        for _, node in source.nodes(filename):
            if isinstance(node, ast.Assign):
                names |= {
                    name
                    for target in node.targets
                    for part, value in _tuple_pairs(target, node.value)
                    if (name := _name(part)) and _shares(value, names)
                }
                names |= {
                    name
                    for target in node.targets
                    for part, value in _assigned_pairs(target, node.value, returned)
                    if _name(part) in names
                    for name in _names_in(value)
                }
            elif isinstance(node, (ast.For, ast.comprehension)):
                names |= _loop_variables(node.target, node.iter, names)
            elif isinstance(node, ast.NamedExpr) and _shares(node.value, names):
                names |= {_name(node.target)} - {""}
            elif isinstance(node, ast.withitem) and _shares(node.context_expr, names):
                names |= {_name(node.optional_vars)} - {""}
            elif isinstance(node, ast.Call):
                names |= _shared_arguments(node)
                known = parameters.get(_name(node.func), [])
                known = known[1:] if known[:1] == ["self"] else known
                names |= {p for p, a in zip(known, node.args, strict=False) if _shares(a, names)}
        if len(names) == before:
            break
    return names


def _returned(filename: str) -> dict[str, list[ast.expr]]:
    """Return the expressions that each function may return, by its last name."""
    found: dict[str, list[ast.expr]] = {}
    for function, node in source.nodes(filename):
        if isinstance(node, ast.Return) and node.value is not None:
            found.setdefault(function.rpartition(".")[2], []).append(node.value)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            for target in node.targets:
                found.setdefault(_name(target), []).append(node.value.body)
    return found


def _assigned_pairs(
    target: ast.expr, value: ast.expr, returned: dict[str, list[ast.expr]], depth: int = 0
) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield pairs of target and value, through tuples and the functions that are called."""
    if isinstance(value, ast.Call) and depth < _ROUNDS:
        for inner in returned.get(_name(value.func), ()):
            yield from _assigned_pairs(target, inner, returned, depth + 1)
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for part, given in zip(target.elts, value.elts, strict=False):
            yield from _assigned_pairs(part, given, returned, depth)
    else:
        yield target, value


def _tuple_pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """Return pairs of target and value; tuples on both sides are matched element by element."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return list(zip(target.elts, value.elts, strict=False))
    return [(target, value)]


def _names_in(value: ast.expr) -> set[str]:
    """Return the names that an expression may evaluate to."""
    if isinstance(value, ast.IfExp):
        return _names_in(value.body) | _names_in(value.orelse)
    if isinstance(value, ast.Subscript):
        return _names_in(value.value)
    return {_name(value)} - {""}


def _loop_variables(target: ast.expr, over: ast.expr, names: set[str]) -> set[str]:
    """Return the loop variables that are rows of shared memory."""
    if isinstance(over, ast.Call) and isinstance(target, ast.Tuple):
        places = {"zip": over.args, "enumerate": [ast.Constant(value=0), *over.args[:1]]}
        given = places.get(_name(over.func), [])
        pairs = zip(target.elts, given, strict=False)
        return {_name(part) for part, value in pairs if _shares(value, names)} - {""}
    return {_name(target)} - {""} if _shares(over, names) else set()


def _shared_arguments(node: ast.Call) -> set[str]:
    if _name(node.func) not in _TAKEN or not node.args:
        return set()
    return _names_in(node.args[0])


def _shares(node: ast.AST, names: set[str]) -> bool:
    """Return whether the value of an expression shares memory with a name or a tensor."""
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
    inner = node.func.value if isinstance(node.func, ast.Attribute) else None
    given = [*node.args, *[word.value for word in node.keywords]]
    return (inner is not None and _shares(inner, names)) or (
        called in _TAKEN | _HOLDS | {"cast", "as_array", "memoryview", "reshape", "ravel", "view"}
        and any(_shares(argument, names) for argument in given)
    )


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


def _name(node: ast.AST | None) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""
