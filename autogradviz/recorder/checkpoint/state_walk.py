"""A bounded walk over the state that a function can access, without running code of the user."""

from __future__ import annotations

import argparse
import enum
import os
import threading
import types
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from autogradviz.event_log.compare_state_readings import Reading, StateValue
from autogradviz.recorder.checkpoint.inspect_user_code import (
    from_library,
    function_of,
    is_elsewhere,
    is_installed,
    is_installed_class,
    is_user_module,
    names_in_class,
    names_of,
    slots,
    texts_of,
)
from autogradviz.recorder.checkpoint.value_repr import (
    BUILT_IN_CONTAINERS,
    CONTAINERS,
    MAX_ITEMS,
    MAX_TEXT,
    PLAIN,
    SEQUENCES,
    ObjectIds,
    TensorFacts,
    key_text,
    parts_of,
    read_value,
    tensor_facts,
    tensor_reading,
)
from autogradviz.recorder.torch_internals.wrapper_tensors import PLAIN_TENSORS
from autogradviz.recorder.user_code_frames import is_library

if TYPE_CHECKING:
    from collections.abc import Iterable


# --- the attributes of modules that a walk over state enters --------------------------------------


TABLES: Final = ("_parameters", "_buffers", "_modules")

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


# --- A bounded walk over the state that a function can access, without running code of the user ---
#
# A walk goes from a function to the variables that its code names (closure cells, globals,
# defaults), to the module that it belongs to and to its arguments, and reads the values that it
# finds, by path: ``{("self", "calls"): 1, ("cache", "keys"): "len 1"}``. Instance dictionaries are
# read directly, and only plain built-in values are shown.


Path: TypeAlias = tuple[str, ...]
"""A variable, then attribute names, and items in brackets; see ``StateChange.state_path``."""

MAX_OBJECTS: Final = 600
MAX_DEPTH: Final = 7

_NAMESPACES: Final = (types.SimpleNamespace, argparse.Namespace, threading.local)
_WITHOUT_PARTS: Final = (types.ModuleType, types.MethodType, torch.Tensor, enum.Enum)
_ENVIRONMENT: Final = frozenset({"environ", "getenv"})

Visit: TypeAlias = "tuple[int, int, int, int]"
"""A value whose parts were queued.

Its index in the queue, the length of the queue after it, and how many classes were read before and
after it. A plain tuple, since the garbage collector never untracks a named one.
"""


def reads_environment(names: tuple[str, ...]) -> bool:
    """Return whether code that reads these names may read environment variables."""
    return not _ENVIRONMENT.isdisjoint(names)


class StateWalk:
    """One walk over the state that a function can access, breadth first.

    The queue is two lists that only grow: values, and where they were found.
    """

    def __init__(self, ids: ObjectIds, classes: Iterable[Any] = ()) -> None:
        self.found: dict[Path, Reading] = {}
        self.places: list[tuple[Path, int]] = []
        """The path and the depth of each value in the queue."""
        self.values: list[Any] = []
        self.visits: list[Visit] = []
        self.readings: list[tuple[int, Reading | None, TensorFacts | None]] = []
        """The readings of the values that are not plain, by index in the queue."""
        self.ids = ids
        self.classes: dict[Any, None] = dict.fromkeys(classes)
        """The addresses of the classes whose methods were read; of an installed one with that of
        the class of the object."""

    def add(self, path: Path, value: Any, depth: int = 0) -> None:
        """Queue one value for the walk."""
        if depth <= MAX_DEPTH:
            self.places.append((path, depth))
            self.values.append(value)

    def walk(self) -> dict[Path, Reading]:
        """Return readings of the queued values and of all that they refer to, nearest first."""
        found, places, readings, ids = self.found, self.places, self.readings, self.ids
        seen: set[int] = set()
        for index, value in enumerate(self.values):  # which grows
            if len(seen) == MAX_OBJECTS:
                break
            path, depth = places[index]
            kind = type(value)
            if kind in PLAIN:  # most values
                found.setdefault(path, repr(value)[:MAX_TEXT])
                continue
            facts = tensor_facts(value) if kind in PLAIN_TENSORS else None
            reading = read_value(value, ids) if facts is None else tensor_reading(facts, ids)
            if reading is not None:
                found.setdefault(path, reading)
            readings.append((index, reading, facts))
            if id(value) not in seen:
                seen.add(id(value))
                classes = len(self.classes)
                self.visit(path, value, depth)
                self.visits.append((index, len(self.values), classes, len(self.classes)))
        return found

    def visit(self, path: Path, value: Any, depth: int) -> None:
        """Queue the parts of a value."""
        kind = type(value)
        if kind is types.FunctionType:
            self._function(path, value, depth)
        elif kind in BUILT_IN_CONTAINERS:
            self._container(path, value, depth)
        elif isinstance(value, torch.nn.Module):
            self._module(path, value, depth)
        else:
            self._visit_other(path, value, depth)

    def _visit_other(self, path: Path, value: Any, depth: int) -> None:
        for name, part in parts_of(value):
            self.add((*path, name) if name else path, part, depth + 1)
        if isinstance(value, CONTAINERS):
            self._container(path, value, depth)
            self._object(path, value, depth)
        elif isinstance(value, types.FunctionType):
            self._function(path, value, depth)
        elif isinstance(value, type):
            if not from_library(value):
                self._class(value, depth)
        elif isinstance(value, _NAMESPACES):
            self._instance(path, dict(value.__dict__), depth, plain_too=True)
        elif not isinstance(value, _WITHOUT_PARTS):
            self._object(path, value, depth)

    def _module(self, path: Path, value: torch.nn.Module, depth: int) -> None:
        """Queue the parts of a module."""
        attributes = value.__dict__
        for name, child in attributes.items():
            if is_user_attribute(name):
                self.add((*path, name), child, depth + 1)
            elif is_hook_table(name) and isinstance(child, dict) and child:
                self._hooks((*path, name), child, depth)
        for table in TABLES:
            for name, child in list(attributes.get(table, {}).items()):
                self.add((*path, name), child, depth + 1)
        self.visit_methods(type(value), depth)

    def _hooks(self, path: Path, hooks: dict[Any, Any], depth: int) -> None:
        """Count the hooks of one kind, and queue them."""
        self.found[path] = StateValue("hooks", f"{len(hooks)} hooks", len(hooks))
        for number, hook in enumerate(list(hooks.values())[:MAX_ITEMS]):
            self.add((*path, f"[{number}]"), hook, depth + 1)

    def _container(self, path: Path, value: Any, depth: int) -> None:
        if isinstance(value, dict):
            for key, item in list(islice(dict.items(value), MAX_ITEMS)):
                name = repr(key) if type(key) in PLAIN else key_text(key, self.ids)
                if name is not None:
                    self.add((*path, f"[{name}]"), item, depth + 1)
        elif isinstance(value, SEQUENCES):
            kind: Any = next(kind for kind in SEQUENCES if isinstance(value, kind))
            for index, item in enumerate(list(islice(kind.__iter__(value), MAX_ITEMS))):
                self.add((*path, f"[{index}]"), item, depth + 1)

    def _function(self, path: Path, value: types.FunctionType, depth: int) -> None:
        if is_library(value.__code__.co_filename):
            if hasattr(value, "__wrapped__"):
                self.add(path, value.__wrapped__, depth + 1)
            elif depth == 0:  # checkpoint_sequential's, around the user's layers
                self._cells(value, depth)
            return
        self._cells(value, depth)
        defaults, code = value.__defaults__ or (), value.__code__
        named = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
        for name, default in zip(named, defaults, strict=False):
            self.add((*path, name), default, depth + 1)
        for name, default in (value.__kwdefaults__ or {}).items():
            self.add((*path, name), default, depth + 1)
        for name, item in value.__dict__.items():  # function.calls += 1
            if name != "__wrapped__":
                self.add((*path, name), item, depth + 1)
        self._names_read(value, depth)

    def _cells(self, function: types.FunctionType, depth: int) -> None:
        cells = function.__closure__ or ()
        for name, cell in zip(function.__code__.co_freevars, cells, strict=False):
            try:
                self.add((name,), cell.cell_contents, depth + 1)
            except ValueError:  # not bound yet
                continue

    def _names_read(self, function: types.FunctionType, depth: int) -> None:
        """Queue the globals that a function's code names."""
        known, code = function.__globals__, function.__code__
        names = names_of(code)
        installed = is_installed(code.co_filename)
        for name in [name for name in names if name in known]:
            found = known[name]
            if installed and is_elsewhere(found, known):
                continue
            if isinstance(found, types.ModuleType):
                self._user_module((name,), found, names, depth)
            else:
                self.add((name,), found, depth + 1)
        if reads_environment(names):
            self._environment(function, names, depth)

    def _user_module(
        self, path: Path, module: types.ModuleType, names: tuple[str, ...], depth: int
    ) -> None:
        """Queue the attributes of a module of the user's that code names: ``config.mode``."""
        if is_user_module(module):
            attributes = module.__dict__
            for name in names:
                if name in attributes and not isinstance(attributes[name], types.ModuleType):
                    self.add((*path, name), attributes[name], depth + 1)

    def _environment(
        self, function: types.FunctionType, names: tuple[str, ...], depth: int
    ) -> None:
        """Queue the environment variables that a function's code names, no others."""
        known = function.__globals__
        read = [*texts_of(function.__code__), *[known.get(name) for name in names]]
        for key in read:
            if isinstance(key, str) and key.isidentifier() and key not in known:
                self.add(("os", "environ", f"[{key!r}]"), os.environ.get(key), depth + 1)

    def visit_methods(self, kind: type, depth: int) -> None:
        """Queue the variables that the methods of a user's class name, and its containers."""
        for base in kind.__mro__[:-1]:
            if id(base) in self.classes or from_library(base):
                continue
            names = names_in_class(kind, base)
            key = id(base) if names is None else (id(kind), id(base))
            if key in self.classes:
                continue
            self.classes[key] = None
            known = dict(vars(base))
            for name in known if names is None else names:
                function = function_of(known[name])
                if isinstance(function, types.FunctionType):
                    self._function((name,), function, depth)
                elif isinstance(function, CONTAINERS) and not name.startswith("__"):
                    self.add((base.__name__, name), function, depth + 1)

    def _class(self, value: type, depth: int) -> None:
        """Queue the attributes of a class that code names."""
        attributes = dict(vars(value))
        if is_installed_class(value):
            attributes = {
                name: item for name, item in attributes.items()
                if not is_elsewhere(function_of(item), {})
            }  # fmt: skip
        self._instance((value.__name__,), attributes, depth, plain_too=True)

    def _object(self, path: Path, value: Any, depth: int) -> None:
        if from_library(type(value)):
            return
        if path not in self.found:
            identity = self.ids.of(id(value))
            self.found[path] = StateValue("object", type(value).__name__, object_id=identity)
        attributes = getattr(value, "__dict__", None)
        if type(attributes) is dict:
            self._instance(path, dict(attributes), depth, plain_too=True)
        for name, item in slots(value):
            self.add((*path, name), item, depth + 1)
        self.visit_methods(type(value), depth)

    def _instance(
        self, path: Path, attributes: dict[str, Any], depth: int, *, plain_too: bool
    ) -> None:
        for name, item in list(attributes.items()):
            if name.startswith("__"):
                continue
            if plain_too or type(item) not in PLAIN:
                self.add((*path, name), item, depth + 1)
