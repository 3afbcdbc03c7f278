"""Replace functions of PyTorch while a recording is open, and restore them."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_INHERITED: Final = object()


@contextmanager
def patched(owner: Any, **ours: Any) -> Iterator[None]:
    """Replace attributes of a class or module while the context is open.

    An attribute that other code has replaced in the meantime stays as it is: a library that is
    imported during a recording may have wrapped our function, which then only calls the original.
    """
    originals = {name: vars(owner).get(name, _INHERITED) for name in ours}
    try:
        for name, function in ours.items():
            setattr(owner, name, function)
        yield
    finally:
        for name, original in originals.items():
            if vars(owner).get(name) is not ours[name]:
                continue
            if original is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


@contextmanager
def patched_in_all_modules(name: str, original: Any, ours: Any) -> Iterator[None]:
    """Replace a function in every loaded module that holds it under its name.

    PyTorch imports some of its functions into several modules, and so do libraries.
    """
    modules = _modules_holding(name, original)
    for module in modules:
        setattr(module, name, ours)
    try:
        yield
    finally:
        for module in modules:
            if vars(module).get(name) is ours:
                setattr(module, name, original)


_found: dict[str, tuple[tuple[int, int] | None, tuple[str, ...]]] = {}
"""By function name: the number of loaded modules and of references to the function, and the
modules that held it."""


def _modules_holding(name: str, function: Any) -> list[Any]:
    """Return the modules that hold a function under a name.

    Searches all of ``sys.modules`` only if modules were loaded or the function has gained or lost
    a reference since the last search.
    """
    count = (len(sys.modules), sys.getrefcount(function))
    known, names = _found.get(name, (None, ()))
    modules = [sys.modules.get(each) for each in names]
    if known != count or not all(_holds(module, name, function) for module in modules):
        loaded = list(sys.modules.items())
        found = {each: module for each, module in loaded if _holds(module, name, function)}
        _found[name] = (count, tuple(found))
        modules = list(found.values())
    return modules


def _holds(module: Any, name: str, function: Any) -> bool:
    # Through __dict__: reading an attribute of a lazy module may import half a library.
    attributes = getattr(module, "__dict__", None)
    return attributes is not None and attributes.get(name) is function
