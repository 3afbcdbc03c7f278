"""Functions, methods and static types of PyTorch that are replaced during a recording."""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
import threading
import weakref
from contextlib import contextmanager
from types import FunctionType, MethodType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch
import torch.utils

from autogradviz.recorder.torch_internals.keep_dynamo_out import (
    forget_tensor_attribute,
    replace_in_rules,
)
from autogradviz.support.locks_gc_and_stderr import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# --- functions, methods and static types of PyTorch that are replaced during a recording ----------


# --- replace functions of PyTorch while a recording is open, and restore them ---------------------


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


def undo(remove: Callable[[], None]) -> None:
    """Undo a change; once more if that fails halfway, for lack of memory or by a signal."""
    try:
        remove()
    except BaseException:
        remove()
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
            undo(change.remove)


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
        undo(patch.remove)


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
        for module in sys.modules.copy().values() if new else self._modules:
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
        loaded = list(sys.modules.copy().items())
        found = {each: module for each, module in loaded if _holds(module, name, function)}
        _found[name] = (count, tuple(found))
        modules = list(found.values())
    return modules


def _holds(module: Any, name: str, function: Any) -> bool:
    # Through __dict__: reading an attribute of a lazy module may import half a library.
    attributes = getattr(module, "__dict__", None)
    return attributes is not None and attributes.get(name) is function


# --- replace methods of types of C, which Python does not let anyone assign -----------------------


class _PatchOfType:
    """Replaces entries of the dict of a type, and tells Python's caches of methods."""

    def __init__(self, kind: type, ours: dict[str, Any]) -> None:
        self._kind = kind
        self._ours = ours
        self._originals = {name: vars(kind)[name] for name in ours}

    def install(self) -> None:
        """Replace each method that is the original."""
        self._replace(self._originals, self._ours)

    def remove(self) -> None:
        """Restore each method that is ours."""
        self._replace(self._ours, self._originals)

    def _replace(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        # The proxy that ``vars`` returns refers to the dict and to nothing else.
        found = [each for each in gc.get_referents(vars(self._kind)) if type(each) is dict]
        if len(found) != 1:
            return  # another Python: what these methods do is not recorded
        entries = found[0]
        for name, value in after.items():
            if entries.get(name) is before[name]:
                entries[name] = value
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(self._kind))


@contextmanager
def patched_type(kind: type, **ours: Any) -> Iterator[None]:
    """Replace methods of a type of C while the context is open and no compiler runs."""
    with hidden_from_compilers(_PatchOfType(kind, ours)):
        yield


# --- replace methods of ``torch.Tensor`` while a recording is open --------------------------------


@contextmanager
def patched_tensor_method(name: str, ours: Callable[..., Any]) -> Iterator[None]:
    """Replace a method of ``torch.Tensor`` while the context is open."""
    original = getattr(torch.Tensor, name)
    method = _Method(original, functools.wraps(original)(ours))
    with patched(torch.Tensor, **{name: method}):
        yield


class _Method:
    """Our method on a tensor; the original when it is read from the class.

    ``__torch_function__`` receives the function that the class has, and programs look it up in
    tables that they filled before.
    """

    def __init__(self, original: Any, ours: Callable[..., Any]) -> None:
        self._original = original
        self._ours = ours

    def __get__(self, tensor: torch.Tensor | None, owner: Any = None) -> Any:
        return self._original if tensor is None else MethodType(self._ours, tensor)


# --- let ``torch.utils.swap_tensors`` work: it refuses tensors that have weak references ----------
#
# Modules swap their parameters for converted ones if these are of a subclass, or if
# ``torch.__future__.set_swap_module_params_on_conversion`` says so. The recorder's weak references
# are released just before PyTorch counts them; it meets the tensors again with their new contents.
#
# PyTorch swaps all parameters that are fake tensors, but its own mode for fake tensors refers
# weakly to each of them, by the tensor that it stands for. In a plan, that is released too.


@contextmanager
def released_before_swap(release: Callable[[torch.Tensor], None]) -> Iterator[None]:
    """Call a function with each tensor that is about to be swapped, while the context is open.

    Args:
        release: drops the caller's weak references to the tensor.
    """
    original = vars(torch.utils).get("weakref")
    if original is not weakref:
        yield
        return

    def references(tensor: Any) -> list[Any]:
        release(tensor)
        return weakref.getweakrefs(tensor)

    ours = SimpleNamespace(**{**vars(weakref), "getweakrefs": references})
    vars(torch.utils)["weakref"] = ours
    try:
        yield
    finally:
        if vars(torch.utils).get("weakref") is ours:
            vars(torch.utils)["weakref"] = original


def forget_fake_tensor(mode: Any, tensor: torch.Tensor) -> None:
    """Drop the weak reference of a mode for fake tensors to one of them."""
    known: weakref.WeakValueDictionary[Any, Any] = mode.fake_tensor_converter.tensor_memo
    for reference in weakref.getweakrefs(tensor):
        key = reference.key if isinstance(reference, weakref.KeyedRef) else None
        if key is not None and known.get(key) is tensor:
            del known[key]
