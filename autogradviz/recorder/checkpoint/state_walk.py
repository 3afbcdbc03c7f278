"""What a function can read besides its tensors: a bounded, harmless description.

``describe`` walks from a function to what its code reads (closure cells, globals, defaults), to
the module that it belongs to and to its arguments, and describes what it finds as short text by
path: ``{"self.calls": "1", "cache.keys": "len 1"}``. Nothing of the user's code runs: instance
dictionaries are read directly, and only plain built-in values are shown.
"""

from __future__ import annotations

import argparse
import collections
import enum
import functools
import os
import sys
import threading
import types
from itertools import islice
from typing import Any, Final

import torch

from autogradviz.recorder.checkpoint.introspection import (
    from_library,
    is_library_module,
    names_of,
    slots,
    texts_of,
)
from autogradviz.recorder.checkpoint.value_repr import (
    CONTAINERS,
    MAX_ITEMS,
    PLAIN,
    SEQUENCES,
    Numbers,
    key_text,
    parts_of,
    value_repr,
)
from autogradviz.recorder.ids.stacks import is_library

MAX_OBJECTS: Final = 600
MAX_DEPTH: Final = 7

_NAMESPACES: Final = (types.SimpleNamespace, argparse.Namespace, threading.local)
_WITHOUT_PARTS: Final = (types.ModuleType, types.MethodType, torch.Tensor, enum.Enum)
_ENVIRONMENT: Final = frozenset({"environ", "getenv"})
_MODULE_INTERNALS: Final = frozenset(
    name for name in vars(torch.nn.Module()) if name[0] == "_" and not name.endswith("_hooks")
) | {"_compiled_call_impl"}
"""What every module keeps of its own: tables that are looked into by themselves, how hooks run."""


class StateWalk:
    """One walk over what a function can read."""

    def __init__(self, numbers: Numbers) -> None:
        self.found: dict[str, str] = {}
        self._numbers = numbers
        self._seen: set[int] = set()
        self._classes: set[type] = set()
        self._keep: list[Any] = []  # addresses stay unique while we walk
        self._queue: collections.deque[tuple[str, Any, int]] = collections.deque()

    def add(self, path: str, value: Any, depth: int = 0) -> None:
        """Queue one value for the walk."""
        if depth <= MAX_DEPTH:
            self._queue.append((path, value, depth))

    def walk(self) -> dict[str, str]:
        """Describe all that is queued and what it leads to, nearest first."""
        visited = 0
        while self._queue and visited < MAX_OBJECTS:
            path, value, depth = self._queue.popleft()
            text = value_repr(value, self._numbers)
            if text is not None:
                self.found.setdefault(path, text)
            if type(value) in PLAIN or id(value) in self._seen:
                continue
            self._seen.add(id(value))
            self._keep.append(value)
            visited += 1
            self._visit(path, value, depth)
        self._keep.clear()
        return self.found

    def _visit(self, path: str, value: Any, depth: int) -> None:
        for name, part in parts_of(value):
            self.add(f"{path}.{name}" if name else path, part, depth + 1)
        if isinstance(value, torch.nn.Module):
            self._module(path, value, depth)
        elif isinstance(value, CONTAINERS):
            self._container(path, value, depth)
            self._object(path, value, depth)
        elif isinstance(value, types.FunctionType):
            self._function(path, value, depth)
        elif isinstance(value, type):
            if not from_library(value):
                self._instance(value.__name__, dict(vars(value)), depth, plain_too=True)
        elif isinstance(value, _NAMESPACES):
            self._instance(path, dict(value.__dict__), depth, plain_too=True)
        elif not isinstance(value, _WITHOUT_PARTS):
            self._object(path, value, depth)

    def _module(self, path: str, value: torch.nn.Module, depth: int) -> None:
        held = value.__dict__
        for name, child in held.items():
            if name in _MODULE_INTERNALS:
                continue
            if name.endswith("_hooks"):
                if isinstance(child, dict) and child:
                    self._hooks(f"{path}.{name}", child, depth)
            elif not name.startswith("_") or name[1:2] != "_":
                self.add(f"{path}.{name}", child, depth + 1)
        for table in ("_parameters", "_buffers", "_modules"):
            for name, child in list(held.get(table, {}).items()):
                self.add(f"{path}.{name}", child, depth + 1)
        self._methods(type(value), depth)

    def _hooks(self, path: str, hooks: dict[Any, Any], depth: int) -> None:
        """Tell how many hooks of a kind there are, and what each can read."""
        self.found[path] = f"{len(hooks)} hooks"
        for number, hook in enumerate(list(hooks.values())[:MAX_ITEMS]):
            self.add(f"{path}[{number}]", hook, depth + 1)

    def _container(self, path: str, value: Any, depth: int) -> None:
        if isinstance(value, dict):
            for key, item in list(islice(dict.items(value), MAX_ITEMS)):
                name = repr(key) if type(key) in PLAIN else key_text(key, self._numbers)
                if name is not None:
                    self.add(f"{path}[{name}]", item, depth + 1)
        elif isinstance(value, SEQUENCES):
            kind: Any = next(kind for kind in SEQUENCES if isinstance(value, kind))
            for index, item in enumerate(list(islice(kind.__iter__(value), MAX_ITEMS))):
                self.add(f"{path}[{index}]", item, depth + 1)

    def _function(self, path: str, value: types.FunctionType, depth: int) -> None:
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
            self.add(f"{path}.{name}", default, depth + 1)
        for name, default in (value.__kwdefaults__ or {}).items():
            self.add(f"{path}.{name}", default, depth + 1)
        for name, item in value.__dict__.items():  # function.calls += 1
            if name != "__wrapped__":
                self.add(f"{path}.{name}", item, depth + 1)
        self._names_read(value, depth)

    def _cells(self, function: types.FunctionType, depth: int) -> None:
        cells = function.__closure__ or ()
        for name, cell in zip(function.__code__.co_freevars, cells, strict=False):
            try:
                self.add(name, cell.cell_contents, depth + 1)
            except ValueError:  # not bound yet
                continue

    def _names_read(self, function: types.FunctionType, depth: int) -> None:
        """Queue the globals that a function's code names."""
        known = function.__globals__
        names = names_of(function.__code__)
        for name in names:
            found = known.get(name, self)
            if isinstance(found, types.ModuleType):
                self._module_of_the_user(name, found, names, depth)
            elif found is not self:
                self.add(name, found, depth + 1)
        if not _ENVIRONMENT.isdisjoint(names):
            self._environment(function, names, depth)

    def _module_of_the_user(
        self, path: str, module: types.ModuleType, names: tuple[str, ...], depth: int
    ) -> None:
        """Queue what code reads of a module of the user's own: ``config.mode``."""
        if module.__name__ not in sys.stdlib_module_names and not is_library_module(
            module.__name__
        ):
            held = module.__dict__
            for name in names:
                if name in held and not isinstance(held[name], types.ModuleType):
                    self.add(f"{path}.{name}", held[name], depth + 1)

    def _environment(
        self, function: types.FunctionType, names: tuple[str, ...], depth: int
    ) -> None:
        """Queue those environment variables that a function's code may read, no others."""
        known = function.__globals__
        read = [*texts_of(function.__code__), *[known.get(name) for name in names]]
        for key in read:
            if isinstance(key, str) and key.isidentifier() and key not in known:
                self.add(f"os.environ[{key!r}]", os.environ.get(key), depth + 1)

    def _methods(self, kind: type, depth: int) -> None:
        """Queue what the methods of a user's class read, and its own containers."""
        for base in kind.__mro__[:-1]:
            if base in self._classes or from_library(base):
                continue
            self._classes.add(base)
            for name, item in list(vars(base).items()):
                if isinstance(item, (staticmethod, classmethod)):
                    item = item.__func__  # noqa: PLW2901 - what is inside
                if isinstance(item, types.FunctionType):
                    self._function(name, item, depth)
                elif isinstance(item, CONTAINERS) and not name.startswith("__"):
                    self.add(f"{base.__name__}.{name}", item, depth + 1)

    def _object(self, path: str, value: Any, depth: int) -> None:
        if from_library(type(value)):
            return
        self.found.setdefault(path, f"{type(value).__name__} {self._numbers.of(id(value))}")
        held = getattr(value, "__dict__", None)
        if type(held) is dict:
            self._instance(path, dict(held), depth, plain_too=True)
        for name, item in slots(value):
            self.add(f"{path}.{name}", item, depth + 1)
        self._methods(type(value), depth)

    def _instance(self, path: str, held: dict[str, Any], depth: int, *, plain_too: bool) -> None:
        for name, item in list(held.items()):
            if name.startswith("__"):
                continue
            if plain_too or type(item) not in PLAIN:
                self.add(f"{path}.{name}", item, depth + 1)


def describe(
    function: Any, arguments: tuple[Any, ...], named: dict[str, Any], numbers: Numbers
) -> dict[str, str]:
    """Return what a function can read, as text by path.

    Args:
        function: what will be called: a function, a bound method or a module.
        arguments: its positional arguments; tensors among them may be None.
        named: its keyword arguments.
        numbers: tells objects apart.
    """
    snapshot = StateWalk(numbers)
    names: tuple[str, ...] = ()
    while isinstance(function, functools.partial):
        arguments, named = (*function.args, *arguments), {**function.keywords, **named}
        function = function.func
    target = function
    if isinstance(function, torch.nn.Module):
        snapshot.add("self", function)
        target = type(function).forward
    elif isinstance(function, types.MethodType):
        snapshot.add("self", function.__self__)
        target = function.__func__
    elif not isinstance(function, types.FunctionType):  # an object that can be called
        snapshot.add("self", function)
        target = vars(type(function)).get("__call__")
    if isinstance(target, types.FunctionType):
        code = target.__code__
        names = code.co_varnames[: code.co_argcount]
        names = names[1:] if target is not function else names
        if target is function:
            snapshot.add(function.__name__, function)
        else:
            snapshot.add("self.forward", target)
    for index, value in enumerate(arguments):
        snapshot.add(names[index] if index < len(names) else f"args[{index}]", value)
    for name, value in named.items():
        snapshot.add(name, value)
    return snapshot.walk()
