"""Introspection: the names that a function reads, ``__slots__`` values, library or user classes.

NOTE [ Installed packages ]
Of what is installed (a folder ``site-packages``), only code is read that a region can run. A class
of transformers has 200 methods, whose globals lead to every module of the library: with them, a
region of a Llama read 1,100 functions (now 30), and a checkpointed step cost 10 times the plain
one.

- Of an installed class, the containers are read, and the methods that ``forward``, ``__call__``,
  the methods of a user's subclass or one of these name.
- Of the globals that installed code names, values are read, functions of the same file, and user
  code: a registry, a flag, a function that was replaced; not modules, nor classes and
  functions of other installed files.
- Attributes of objects and modules are read as those of the user's: a configuration, a cache, a
  layer of the user's in a layer of the library's.

What ``__main__`` belongs to is the user's, wherever it is.
"""

from __future__ import annotations

import functools
import os
import sys
import types
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.recorder.checkpoint.value_repr import CONTAINERS
from autogradviz.recorder.user_code_frames import is_library
from autogradviz.support.source_lines_and_libraries import path_in_packages

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENTRIES: Final = ("forward", "__call__")
_MAX_WRAPPERS: Final = 8


@lru_cache(maxsize=4096)
def names_of(code: types.CodeType) -> tuple[str, ...]:
    """Return the names that a function's code and the functions inside it read."""
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.extend(names_of(constant))
    return tuple(dict.fromkeys(names))


@lru_cache(maxsize=4096)
def texts_of(code: types.CodeType) -> tuple[str, ...]:
    """Return the string constants of a function's code and of the functions inside it."""
    texts: list[str] = []
    for constant in code.co_consts:
        if isinstance(constant, str):
            texts.append(constant)
        elif isinstance(constant, types.CodeType):
            texts.extend(texts_of(constant))
    return tuple(texts)


def slots(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values in an object's ``__slots__``; their descriptors run no code of the user."""
    for base in type(value).__mro__[:-1]:
        for name, item in vars(base).items():
            if isinstance(item, types.MemberDescriptorType):
                try:
                    yield name, item.__get__(value)
                except AttributeError:  # empty
                    continue


def has_slots(kind: type) -> bool:
    """Return whether ``slots`` may yield values of an object of this class."""
    return any(
        isinstance(item, types.MemberDescriptorType)
        for base in kind.__mro__[:-1]
        for item in vars(base).values()
    )


def from_library(kind: type) -> bool:
    """Return whether a class is not the user's own."""
    name = kind.__module__
    return name == "builtins" or is_library_module(name)


def is_user_module(module: types.ModuleType) -> bool:
    """Return whether a module is not of the standard library, torch or autogradviz."""
    name = module.__name__
    return name not in sys.stdlib_module_names and not is_library_module(name)


@lru_cache(maxsize=4096)
def is_library_module(name: str) -> bool:
    """Return whether a module belongs to torch, the standard library or autogradviz."""
    filename = getattr(sys.modules.get(name), "__file__", None)
    return filename is not None and is_library(filename)


@lru_cache(maxsize=4096)
def is_installed(filename: str) -> bool:
    """Return whether a file belongs to an installed package, not to the program that runs."""
    path = path_in_packages(filename)
    if path is None:
        return False
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    own = "" if spec is None else spec.name.partition(".")[0]
    return path.partition(os.sep)[0] != own


def is_installed_class(kind: type) -> bool:
    """Return whether a class belongs to an installed package."""
    filename = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return filename is not None and is_installed(filename)


def is_elsewhere(value: Any, known: dict[str, Any]) -> bool:
    """Return whether a global of installed code is code that is not read for it.

    Args:
        value: what the code names.
        known: the globals of the code.
    """
    if isinstance(value, type):
        return from_library(value) or is_installed_class(value)
    if isinstance(value, types.ModuleType):
        return True
    functions = list(_wrapped(value))
    return bool(functions) and all(
        is_library(each.__code__.co_filename)
        or (is_installed(each.__code__.co_filename) and each.__globals__ is not known)
        for each in functions
    )


def _wrapped(value: Any) -> Iterator[types.FunctionType]:
    """Yield a function and those that it wraps, also if it caches their results."""
    for _ in range(_MAX_WRAPPERS):
        if type(value) is types.FunctionType:
            yield value
            value = value.__dict__.get("__wrapped__")
        elif type(value) is functools._lru_cache_wrapper:  # noqa: SLF001 - has no public name
            value = value.__wrapped__
        else:
            return


def function_of(item: Any) -> Any:
    """Return the function of a static or class method, and any other item of a class itself."""
    return item.__func__ if isinstance(item, (staticmethod, classmethod)) else item


def names_in_class(kind: type, base: type) -> tuple[str, ...] | None:
    """Return the names in a base that are read for an object of a class, None if all are."""
    if not is_installed_class(base):
        return None
    called = _called(kind)
    return tuple([
        name for name, item in vars(base).items()
        if name in called or (isinstance(item, CONTAINERS) and name[:2] != "__")
    ])  # fmt: skip


def _called(kind: type) -> set[str]:
    """Return the names that an object of a class reads when it is called, methods among them."""
    bases = [vars(base) for base in kind.__mro__[:-1] if not from_library(base)]
    pending = [*_ENTRIES]
    for base in kind.__mro__[:-1]:
        if not (from_library(base) or is_installed_class(base)):  # all of its methods are read
            pending.extend(vars(base))
    found: set[str] = set()
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found.add(name)
        for base_items in bases:
            for function in _wrapped(function_of(base_items.get(name))):
                pending.extend(names_of(function.__code__))
    return found


def without_wrappers(function: Any) -> Any:
    """Return the module or function that an installed package's function was made to call.

    Packages that wrap checkpoint give it a function of their own, which has the user's in its
    closure.
    """
    for _ in range(_MAX_WRAPPERS):
        filename = function.__code__.co_filename if type(function) is types.FunctionType else ""
        if not is_installed(filename) or is_library(filename):
            break
        called = [each for each in _closure(function) if _is_callable(each)]
        if len(called) != 1:
            break
        function = called[0]
    return function


def _closure(function: types.FunctionType) -> list[Any]:
    found = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # empty
            found.append(cell.cell_contents)
    return found


def _is_callable(value: Any) -> bool:
    kind = type(value)  # past a ``__class__`` of the user's own, which would run
    functions = {types.FunctionType, types.MethodType, functools.partial}
    return kind in functions or issubclass(kind, torch.nn.Module)
