"""The attributes of modules that a walk over state enters.

Modules that were initialized alike have the same attributes in the same order. Which of them are
PyTorch's own is decided once for each such list of names.
"""

from __future__ import annotations

from collections import OrderedDict
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

Parts: TypeAlias = "tuple[tuple[str, ...], list[Any]]"
"""Names, and what they refer to."""

TABLES: Final = ("_parameters", "_buffers", "_modules")
_TABLE_CLASSES: Final = frozenset({dict, OrderedDict})
MAX_PLANS: Final = 4096
"""Lists of names that are remembered."""

_INTERNALS: Final = frozenset(
    name for name in vars(torch.nn.Module()) if name[0] == "_" and not name.endswith("_hooks")
) | {"_compiled_call_impl"}
"""Attributes of ``nn.Module`` itself: tables that the walk enters one by one, and flags."""


def is_hook_table(name: str) -> bool:
    """Return whether an attribute of a module holds hooks."""
    return name not in _INTERNALS and name.endswith("_hooks")


def is_user_attribute(name: str) -> bool:
    """Return whether an attribute of a module is not one of PyTorch's tables and flags."""
    return name not in _INTERNALS and name[:2] != "__" and not name.endswith("_hooks")


class _Plan:
    """The names of the attributes of some modules, and a function that reads them."""

    __slots__ = ("own", "read")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.own = tuple([name for name in names if is_user_attribute(name)])
        hooks = [name for name in names if is_hook_table(name)]
        self.read: Callable[[dict[str, Any]], tuple[Any, ...]] | None = None
        if set(TABLES) <= set(names):
            self.read = itemgetter(*[*self.own, *TABLES, *hooks])


_PLANS: Final[dict[tuple[str, ...], _Plan]] = {}


def parts_of_module(module: torch.nn.Module) -> Parts | None:
    """Return a module's attributes, parameters, buffers and submodules.

    None if it has hooks, or tables of another class: then they have to be read one by one.
    """
    attributes = module.__dict__
    key = tuple(attributes)
    plan = _PLANS.get(key)
    if plan is None:
        if len(_PLANS) >= MAX_PLANS:
            _PLANS.clear()
        plan = _PLANS[key] = _Plan(key)
    if plan.read is None:
        return None
    values = plan.read(attributes)
    names, count = plan.own, len(plan.own)
    tables = values[count:]
    if not _TABLE_CLASSES.issuperset(map(type, tables)) or any(tables[len(TABLES) :]):
        return None
    parts = list(values[:count])
    for table in tables[: len(TABLES)]:
        if table:
            names += tuple(table)
            parts += table.values()
    return names, parts
