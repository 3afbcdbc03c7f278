"""Introspection: the names that a function reads, ``__slots__`` values, library or user classes."""

from __future__ import annotations

import sys
import types
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from autogradviz.recorder.user_code_frames import is_library

if TYPE_CHECKING:
    from collections.abc import Iterator


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
