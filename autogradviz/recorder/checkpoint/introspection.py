"""What a function's code names, what a class keeps in slots, and whose a class is."""

from __future__ import annotations

import sys
import types
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from autogradviz.recorder.ids.stacks import is_library

if TYPE_CHECKING:
    from collections.abc import Iterator


@lru_cache(maxsize=4096)
def names_of(code: types.CodeType) -> tuple[str, ...]:
    """Return the names that a function's code reads, and those of the functions inside it."""
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.extend(names_of(constant))
    return tuple(dict.fromkeys(names))


@lru_cache(maxsize=4096)
def texts_of(code: types.CodeType) -> tuple[str, ...]:
    """Return the strings that a function's code, and the functions inside it, mention."""
    texts: list[str] = []
    for constant in code.co_consts:
        if isinstance(constant, str):
            texts.append(constant)
        elif isinstance(constant, types.CodeType):
            texts.extend(texts_of(constant))
    return tuple(texts)


def slots(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object keeps in ``__slots__``: their descriptors run no user's code."""
    for base in type(value).__mro__[:-1]:
        for name, item in vars(base).items():
            if isinstance(item, types.MemberDescriptorType):
                try:
                    yield name, item.__get__(value)
                except AttributeError:  # empty
                    continue


def from_library(kind: type) -> bool:
    """Return whether a class is none of the user's own."""
    name = kind.__module__
    return name == "builtins" or is_library_module(name)


@lru_cache(maxsize=4096)
def is_library_module(name: str) -> bool:
    """Return whether a module is torch's, the standard library's or ours."""
    filename = getattr(sys.modules.get(name), "__file__", None)
    return filename is not None and is_library(filename)
