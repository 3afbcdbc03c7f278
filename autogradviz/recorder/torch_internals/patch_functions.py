"""Replace functions of PyTorch while a recording is open, and restore them."""

from __future__ import annotations

import functools
import sys
import threading
from contextlib import contextmanager
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from autogradviz.recorder.torch_internals.keep_dynamo_out import (
    forget_tensor_attribute,
    replace_in_rules,
)
from autogradviz.support.fork_safe_locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

_INHERITED: Final = object()


def _name_like(ours: Any, original: Any) -> None:
    """Give our function name, signature and documentation of the original.

    It is then pickled as the original is. Both may be static methods.
    """
    function, named = (getattr(each, "__func__", each) for each in (ours, original))
    if isinstance(function, FunctionType) and callable(named) and named is not function:
        functools.update_wrapper(function, named)


class _Patch:
    """Replaces attributes of a class or module by ours."""

    def __init__(self, owner: Any, ours: dict[str, Any]) -> None:
        self._owner = owner
        self._ours = ours
        self._originals = {name: vars(owner).get(name, _INHERITED) for name in ours}
        for name, original in self._originals.items():
            _name_like(ours[name], original)

    def install(self) -> None:
        """Replace each attribute that holds the original."""
        for name, original in self._originals.items():
            if vars(self._owner).get(name, _INHERITED) is original:
                setattr(self._owner, name, self._ours[name])

    def remove(self) -> None:
        """Restore each attribute that holds ours."""
        for name, original in self._originals.items():
            if vars(self._owner).get(name) is not self._ours[name]:
                continue
            if original is _INHERITED:
                delattr(self._owner, name)
            else:
                setattr(self._owner, name, original)
                replace_in_rules(self._ours[name], original)
            if self._owner is torch.Tensor:
                forget_tensor_attribute(name, self._ours[name])


class Removable(Protocol):
    """A change of PyTorch that is undone while a compiler runs."""

    def install(self) -> None:
        """Make the change."""

    def remove(self) -> None:
        """Undo the change."""


_hidden: list[Removable] = []
"""The open changes that compilers must not see, in the order of installation."""
_compiling: set[int] = set()
"""The threads on which a compiler runs; the changes are undone while there is any."""
_lock: Final = new_lock()


def hide_from_compiler(compiling: bool) -> None:  # noqa: FBT001
    """Undo all changes while a compiler runs on this thread.

    Dynamo recognizes functions of PyTorch by identity. It would trace ours, guard them, and keep
    what it read in tables that outlive the recording.
    """
    with _lock:
        before = bool(_compiling)
        (_compiling.add if compiling else _compiling.discard)(threading.get_ident())
        if before and not _compiling:
            for each in _hidden:
                each.install()
        elif _compiling and not before:
            for each in reversed(_hidden):
                each.remove()


def _undo(change: Removable) -> None:
    """Undo a change; once more if that fails halfway, for lack of memory or by a signal."""
    try:
        change.remove()
    except BaseException:
        change.remove()
        raise


def forget_compilers() -> None:
    """Forget the threads on which a compiler runs; nothing follows them any more."""
    _compiling.clear()


@contextmanager
def hidden_from_compilers(change: Removable) -> Iterator[None]:
    """Make a change while the context is open and no compiler runs."""
    try:
        with _lock:
            _hidden.append(change)
            if not _compiling:
                change.install()
        yield
    finally:  # also if a signal interrupts the installation
        with _lock:
            if change in _hidden:
                _hidden.remove(change)
            _undo(change)


@contextmanager
def patched(owner: Any, **ours: Any) -> Iterator[None]:
    """Replace attributes of a class or module while the context is open and no compiler runs.

    An attribute that other code has replaced in the meantime stays as it is: a library that is
    imported during a recording may have wrapped our function, which then only calls the original.
    """
    with hidden_from_compilers(_Patch(owner, ours)):
        yield


@contextmanager
def patched_for_compilers_too(owner: Any, **ours: Any) -> Iterator[None]:
    """Replace attributes of a class or module while the context is open."""
    patch = _Patch(owner, ours)
    try:
        patch.install()
        yield
    finally:
        _undo(patch)


@contextmanager
def patched_in_all_modules(name: str, original: Any, ours: Any) -> Iterator[None]:
    """Replace a function in every loaded module that holds it under its name.

    PyTorch imports some of its functions into several modules, and so do libraries.
    """
    with hidden_from_compilers(_PatchOfModules(name, original, ours)):
        yield


class _PatchOfModules:
    """Replaces a function in every module that holds it; modules are imported meanwhile."""

    def __init__(self, name: str, original: Any, ours: Any) -> None:
        self._name = name
        self._original = original
        self._ours = ours
        _name_like(ours, original)
        self._modules: list[Any] = []
        self._loaded = 0

    def install(self) -> None:
        """Replace the original."""
        self._modules = _modules_holding(self._name, self._original)
        self._loaded = len(sys.modules)
        for module in self._modules:
            setattr(module, self._name, self._ours)

    def remove(self) -> None:
        """Restore the original."""
        new = self._loaded != len(sys.modules)
        for module in list(sys.modules.values()) if new else self._modules:
            if _holds(module, self._name, self._ours):
                setattr(module, self._name, self._original)
        replace_in_rules(self._ours, self._original)


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
