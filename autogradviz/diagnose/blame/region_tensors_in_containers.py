"""Tensors that reach a region, or leave it, inside a container: a tuple, a list, an object."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.name_aliases import parameters

if TYPE_CHECKING:
    from autogradviz.analysis import Op, Region
    from autogradviz.diagnose.evidence.facts import Evidence

_MANY: Final = 1 << 10


def is_nested_argument(evidence: Evidence, region: Region, reader: Op) -> bool:
    """Return whether an op of a region reads a tensor from inside one of the arguments.

    The op's line must be in the checkpointed function and use only its parameters and values
    computed from them, and the call must pass more than plain tensors.
    """
    place, call = reader.location, region.location
    if place is None or call is None or place.function != region.function:
        return False
    named = next(
        (names for name, names in parameters(place.filename) if name == place.function), []
    )
    free = _free(place.filename, place.function, place.lineno)
    if free is None or free - set(named):
        return False
    tensors = {s for op in region.ops for s in storages(op.inputs)}
    bare = {s.tensor.storage_id for s in evidence.analysis.saved.values()
            if s.is_argument and s.region_id == region.region_id} & tensors  # fmt: skip
    return _argument_count(call.filename, call.lineno) > len(bare)


def is_nested_result(region: Region, maker: Op) -> bool:
    """Return whether the result of an op in a region's function is in the value it returns."""
    place = maker.location
    if place is None or place.function != region.function:
        return False
    owner = next(
        (o for name, o in source.functions(place.filename) if name == place.function), None
    )
    nodes = source.own_nodes(owner) if owner is not None else ()
    made = _assigned(nodes)
    returns = [node.value for node in nodes if isinstance(node, ast.Return)]
    names = {name for value in returns for name in _held(value)}
    while new := {part for n in names for v in made.get(n, ()) for part in _held(v)} - names:
        names |= new
    here = {name for name, values in made.items()
            if any(v.lineno <= place.lineno <= (v.end_lineno or 0) for v in values)}  # fmt: skip
    return bool(here & names)


def _free(filename: str, function: str, lineno: int) -> set[str] | None:
    """Return the names outside a function that a line depends on, through local variables.

    None if the line reads an attribute of ``self``, which may be the tensor.
    """
    owner = next((owner for name, owner in source.functions(filename) if name == function), None)
    if owner is None:
        return None
    nodes = source.own_nodes(owner)
    made = _assigned(nodes)
    names: set[str] = set()
    new: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.stmt) and node.lineno <= lineno <= (node.end_lineno or 0):
            new |= _read(node)
    while new:
        names |= new
        new = {part for name in new for value in made.get(name, ()) for part in _read(value)}
        new -= names
    if any(_reads_self(node, lineno) for node in nodes):
        return None
    return {name for name in names if name not in made and name != "self"}


def _reads_self(node: ast.AST, lineno: int) -> bool:
    """Return whether a statement on a line reads an attribute of ``self``; calls do not count."""
    if not isinstance(node, ast.stmt) or node.lineno != lineno:
        return False
    parts = list(ast.walk(node))
    called = {part.func for part in parts if isinstance(part, ast.Call)}
    attributes = [part for part in parts if isinstance(part, ast.Attribute)]
    return any(part not in called and _is_self(part.value) for part in attributes)


def _assigned(nodes: tuple[ast.AST, ...]) -> dict[str, list[ast.expr]]:
    """Return the expressions that a function assigns to each of its variables."""
    found: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name):
                        found.setdefault(part.id, []).append(node.value)
    return found


def _read(node: ast.AST) -> set[str]:
    """Return the variables that an expression reads, without the functions it calls."""
    called = {part.func for part in ast.walk(node) if isinstance(part, ast.Call)}
    owners = {part.value for part in called if isinstance(part, ast.Attribute)}
    return {
        part.id
        for part in ast.walk(node)
        if isinstance(part, ast.Name)
        and isinstance(part.ctx, ast.Load)
        and part not in called
        and not (part in owners and part.id in {"torch", "F", "nn", "math"})
        and part.id not in {"isinstance", "tuple", "list", "dict"}
    }


def _held(node: ast.AST | None) -> set[str]:
    """Return the variables in a tuple, list, dictionary or constructor call."""
    if isinstance(node, ast.Name):
        return {node.id}
    parts: list[ast.expr | None] = []
    if isinstance(node, (ast.Tuple, ast.List)):
        parts = [*node.elts]
    elif isinstance(node, ast.Dict):
        parts = [*node.values]
    elif isinstance(node, ast.Call):
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if called[:1].isupper() or called in {"dict", "tuple", "list"}:
            parts = [*node.args, *[word.value for word in node.keywords]]
    return {name for part in parts for name in _held(part)}


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _argument_count(filename: str, lineno: int) -> int:
    """Return the number of arguments that a call of ``checkpoint`` passes on; ``*args`` is many."""
    found = [
        node
        for _, node in source.nodes(filename)
        if isinstance(node, ast.Call)
        and node.lineno <= lineno <= (node.end_lineno or node.lineno)
        and "checkpoint" in ast.unparse(node.func)
    ]
    if not found:
        return 0
    call = found[0]
    if any(isinstance(part, ast.Starred) for part in call.args):
        return _MANY
    own = {"use_reentrant", "preserve_rng_state"}
    return len(call.args) - 1 + sum(word.arg not in own for word in call.keywords)
