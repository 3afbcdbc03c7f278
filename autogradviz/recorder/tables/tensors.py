"""Tensors and storages, numbered without holding them.

NOTE [ Which storage is this? ]
PyTorch keeps a storage's Python object as long as the storage, so its address tells which storage
it is. That is used anew as soon as the storage is freed, and would alone make two tensors one; a
weak reference says when the storage dies, before that can happen. The weak references that PyTorch
itself has (``UntypedStorage._weak_ref``) keep the C++ header of each dead storage: a thousand small
holes between the user's tensors, which cost a backward a tenth of its memory.

A tensor is a window on a storage: offset, shape and dtype. ``detach()``, ``alias`` and the
object that autograd saved are the same window, and the same tensor here.
"""

from __future__ import annotations

import sys
import threading
import weakref
from array import array
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from autogradviz.events import NO_ID, TensorSeen

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from autogradviz.recorder.recorder import Recorder

shape_of: Any = torch._C.TensorBase.__dict__["shape"].__get__  # noqa: SLF001
"""A tensor's shape; a class may have put one of its own over it, as lazy parameters' has."""

MAX_WINDOWS: Final = 50_000
"""More windows on living storages than this are not all remembered in a long recording."""

_Tensor: Final = torch.Tensor
PLAIN_TENSORS: Final = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
"""PyTorch's own classes: asking such a tensor runs nobody's Python code."""


def version_of(tensor: torch.Tensor) -> int:
    """Return a tensor's version counter, NO_ID for one that has none (inference mode)."""
    try:
        return tensor._version  # noqa: SLF001 - has no public name
    except RuntimeError:
        return NO_ID


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class Sparse(dict[int, int]):
    """Stands in for an array, most of which has been forgotten."""

    end = sys.maxsize
    """How long the array is."""

    def append(self, value: int) -> None:
        """Put a value behind all others."""
        self[self.end] = value
        self.end += 1

    def __missing__(self, number: int) -> int:
        return NO_ID

    def __len__(self) -> int:
        return self.end


Window: TypeAlias = tuple[Any, tuple[int, ...], torch.dtype]
"""Offset, shape and type."""

Description: TypeAlias = tuple[Window, tuple[int, ...], str, int]
"""What tensors of one window share, as there are few of them: window, shape, type, bytes."""


class _Death(weakref.ref[torch.UntypedStorage]):
    """Tells that a storage died."""

    __slots__ = ("address",)

    address: int


Storage: TypeAlias = tuple[Window, int, int, _Death]
"""What is known of a storage while it lives; the first of its tensors needs no key.

That tensor's window and number, and the storage's own number.
"""


class TensorTable:
    """Gives every distinct tensor a number and describes it once in the log."""

    def __init__(self, recorder: Recorder) -> None:
        self._threads = recorder.threads
        self._tell = recorder.teller(TensorSeen)
        self._lock = threading.RLock()  # a finaliser may run ops while we hold it
        self._ids: dict[Any, int] = {}  # of all but the storages' first tensors
        self._others: dict[int, list[tuple[Any, ...]]] = {}  # their keys, by storages' addresses
        self._storages: dict[int, Storage] = {}  # the living, by address
        self._dead: deque[_Death] = deque()  # not forgotten yet
        self._count = 0
        self._storage_count = 0
        self._described: dict[Window, Description] = {}
        self.storage_of: array[int] | Sparse = array("q")
        """Storages by tensor number, NO_ID where a tensor has none."""

    def number(self, tensor: torch.Tensor) -> int:
        """Return a tensor's number.

        Call it with PyTorch's function overrides switched off: reading ``shape`` of a tensor
        subclass is a function call that the subclass would see.
        """
        if self._dead:
            self._bury()
        kind = type(tensor)
        try:
            if kind is _Tensor or kind in PLAIN_TENSORS:
                window = (tensor.storage_offset(), tensor.shape, tensor.dtype)
            elif kind.__torch_dispatch__ is not _Tensor.__torch_dispatch__:
                return self._opaque(kind)
            else:
                window = (tensor.storage_offset(), shape_of(tensor), tensor.dtype)
            storage = tensor.untyped_storage()
        except RuntimeError:  # sparse, functorch's wrappers, nested tensors of no one shape
            return self._without_storage(tensor)
        address = id(storage)
        known = self._storages.get(address)
        if known is not None:
            if known[0] == window:
                return known[1]
            found = self._ids.get((address, window))
            if found is not None:
                return found
        return self._define(storage, window, tensor)

    def storage_id(self, tensor_id: int) -> int | None:
        """Return the number of a tensor's storage, None where it has none."""
        storage_id = self.storage_of[tensor_id] if tensor_id >= 0 else NO_ID
        return None if storage_id == NO_ID else storage_id

    def _define(self, storage: torch.UntypedStorage, window: Window, tensor: torch.Tensor) -> int:
        # The tuple is equal to the size, and no load on the garbage collector.
        window, shape, word, nbytes = self._described.get(window) or self._describe(window, tensor)
        address = id(storage)
        lock = self._lock
        lock.acquire()  # which costs half of what a with block does
        try:
            known = self._storages.get(address)
            storage_id = self._storage_count if known is None else known[2]
            tensor_id = self._count
            self._count = tensor_id + 1
            self.storage_of.append(storage_id)
            # Complete when they can be found: other threads look without the lock.
            if known is None:
                self._storage_count = storage_id + 1
                death = _Death(storage, self._dead.append)
                death.address = address
                self._storages[address] = (window, tensor_id, storage_id, death)
            else:
                key = (address, window)
                self._ids[key] = tensor_id
                self._others.setdefault(address, []).append(key)
        finally:
            lock.release()
        self._tell(
            self._threads.local.state.number, None, tensor_id, storage_id, shape, word,
            "cpu" if tensor.is_cpu else str(tensor.device), nbytes, storage.nbytes(),
        )  # fmt: skip
        return tensor_id

    def _describe(self, window: Window, tensor: torch.Tensor) -> Description:
        offset, size, dtype = window
        shape = tuple([int(length) for length in size])  # symbolic sizes become numbers
        nbytes = int(tensor.numel() * tensor.element_size())
        window = (offset, shape, dtype)
        found = self._described[window] = (window, shape, _word(dtype), nbytes)
        return found

    def _without_storage(self, tensor: torch.Tensor) -> int:
        size = torch.Size() if tensor.is_nested else shape_of(tensor)
        key = (type(tensor), tuple(size), tensor.dtype, str(tensor.layout))
        shape = tuple([int(length) for length in size])
        return self._bare(key, shape, _word(tensor.dtype), str(tensor.device))

    def _opaque(self, kind: type) -> int:
        # A subclass with its own dispatch may answer ``shape`` with Python code of its own:
        # looking would run the user's code, so only its type is told.
        return self._bare(kind, (), kind.__name__, "")

    def _bare(self, key: Any, shape: tuple[int, ...], dtype: str, device: str) -> int:
        found = self._ids.get(key)
        if found is None:
            with self._lock:
                found = self._count
                self._count = found + 1
                self.storage_of.append(NO_ID)
                self._ids[key] = found
            thread = self._threads.local.state.number
            self._tell(thread, None, found, None, shape, dtype, device, 0, 0)
        return found

    def forget(self, used: AbstractSet[int]) -> None:
        """Let go of what is dead, and of the windows on living storages if those are too many.

        Args:
            used: tensors that must keep their numbers while they live.
        """
        with self._lock:
            self._bury()
            if len(self._ids) > MAX_WINDOWS:
                for key in [key for key, number in self._ids.items() if number not in used]:
                    del self._ids[key]
            if len(self._described) > MAX_WINDOWS:
                self._described.clear()
            self.storage_of = Sparse((each, self.storage_of[each]) for each in self.living)
            self.storage_of.end = self._count

    @property
    def living(self) -> AbstractSet[int]:
        """The numbers that may be used again."""
        first = [storage[1] for storage in list(self._storages.values())]
        return {*self._ids.values(), *first}

    @property
    def storages(self) -> AbstractSet[int]:
        """The numbers of the storages that may be used again."""
        return {storage[2] for storage in list(self._storages.values())}

    def _bury(self) -> None:
        """Forget the storages that have died.

        Each stays on the list until nothing knows it, so that no other thread takes a new
        storage at its address for it.
        """
        with self._lock:
            while self._dead:
                death = self._dead[0]
                for key in self._others.pop(death.address, ()):
                    self._ids.pop(key, None)
                self._storages.pop(death.address, None)
                if self._dead and self._dead[0] is death:  # no finaliser did it meanwhile
                    self._dead.popleft()

    def close(self) -> None:
        """Forget everything."""
        self._storages.clear()
        self._others.clear()
        self._ids.clear()
