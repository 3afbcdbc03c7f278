"""Statements of a class that keep modules in a list or dict, where no module registers them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.operands_changed_as_fixes import with_value_changed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.analysis import SourceLocation

_Statement: TypeAlias = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Call
_STATEMENTS: Final = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Call)
_FILLING: Final = frozenset({"append", "extend", "insert", "add", "update", "setdefault"})
_DICTS: Final = (ast.Dict, ast.DictComp)
_LISTS: Final = (ast.List, ast.Tuple, ast.Set, ast.ListComp, ast.SetComp, ast.GeneratorExp)
_CONTAINERS: Final = {"list": False, "tuple": False, "set": False, "deque": False, "dict": True}


class PlainContainer(NamedTuple):
    """A statement that keeps modules in an attribute which is no module."""

    location: SourceLocation
    attribute: str
    is_dict: bool

    @property
    def fix(self) -> str:
        """The statement with a container that is a module, or else the one to add after it."""
        kind = "ModuleDict" if self.is_dict else "ModuleList"
        changed = with_value_changed(self.location, f"torch.nn.{kind}({{}})") or ""
        if changed.startswith(f"self.{self.attribute} = "):
            return changed
        return f"self.{self.attribute} = torch.nn.{kind}(self.{self.attribute})"


def plain_containers(files: Iterable[str], owner: str, kind: str) -> list[PlainContainer]:
    """Return the statements that keep new modules in a container which is no module.

    Args:
        files: the user's files.
        owner: the class of the module that calls them.
        kind: their class.
    """
    found: dict[str, PlainContainer] = {}
    for filename in files:
        for function, scope in source.functions(filename):
            if f".{function}".rpartition(".")[0].endswith(f".{owner}"):
                for container in _in_function(filename, function, scope, kind):
                    found.setdefault(container.attribute, container)
    return list(found.values())


def _in_function(
    filename: str, function: str, scope: ast.AST, kind: str
) -> Iterator[PlainContainer]:
    nodes = source.own_nodes(scope)
    kinds = {kind}  # the class, and variables that are one of its modules
    names: dict[str, bool] = {}  # variables with a container of them; True for a dict
    ordered = [node for node in nodes if isinstance(node, _STATEMENTS)]
    for node in sorted(ordered, key=lambda each: (each.lineno, each.col_offset)):
        if isinstance(node, ast.Assign) and _is_call(node.value, kind):
            kinds |= {each.id for each in node.targets if isinstance(each, ast.Name)}
        is_dict, targets = _kept(node, kinds, names)
        for target in targets if is_dict is not None else ():
            is_item = isinstance(target, ast.Subscript)
            place = source.container(target)
            if isinstance(place, ast.Name):
                names[place.id] = is_dict or is_item
            elif isinstance(place, ast.Attribute) and source.is_named(place.value, "self"):
                location = source.location(filename, node.lineno, function)
                yield PlainContainer(location, place.attr, is_dict or is_item)


def _kept(
    node: _Statement, kind: set[str], names: dict[str, bool]
) -> tuple[bool | None, list[ast.expr]]:
    """Return whether a dict or list gets modules, None if neither, and what keeps it."""
    if isinstance(node, ast.Call):
        fills = isinstance(node.func, ast.Attribute) and node.func.attr in _FILLING
        if fills and any(_makes(part, kind) for part in node.args):
            return node.func.attr in {"update", "setdefault"}, [node.func.value]  # type: ignore[attr-defined]
        return None, []
    targets: list[ast.expr] = [*(node.targets if isinstance(node, ast.Assign) else [node.target])]
    items = [each for each in targets if isinstance(each, ast.Subscript)]
    if node.value is not None and items and _makes(node.value, kind):
        return True, list(items)
    return _container_of(node.value, kind, names), targets


def _container_of(value: ast.expr | None, kind: set[str], names: dict[str, bool]) -> bool | None:
    """Return whether an expression is a dict or a list of new modules, None if it is neither."""
    if isinstance(value, ast.Name):
        return names.get(value.id)
    if isinstance(value, ast.BinOp):
        parts = (_container_of(each, kind, names) for each in (value.left, value.right))
        return next((each for each in parts if each is not None), None)
    if isinstance(value, ast.Call):
        is_dict = _CONTAINERS.get(source.last_name(value.func))
        makes = any(_makes(part, kind) for part in value.args)
        return is_dict if makes else None
    makes = isinstance(value, (*_DICTS, *_LISTS)) and _makes(value, kind)
    return isinstance(value, _DICTS) if makes else None


def _makes(value: ast.expr, kinds: set[str]) -> bool:
    return any(
        source.last_name(node) in kinds
        for node in ast.walk(value)
        if isinstance(node, (ast.Name, ast.Attribute))
    )


def _is_call(value: ast.expr, kind: str) -> bool:
    return isinstance(value, ast.Call) and source.last_name(value.func) == kind
