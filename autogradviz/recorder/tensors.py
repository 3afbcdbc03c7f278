"""Tensors and storages, numbered without holding them.

NOTE [ Which storage is this? ]
A storage's address is reused as soon as it is freed, so an address alone would make two tensors
one. A weak reference (``UntypedStorage._weak_ref``) keeps the small C++ header, not the bytes:
while we hold it the address belongs to nobody else. All are given back by ``close``.

A tensor is a window on a storage: offset, shape and dtype. ``detach()``, ``alias`` and the
object that autograd saved are the same window, and the same tensor here.
"""

from __future__ import annotations

import threading
from array import array
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from autogradviz.events import NO_ID, TensorSeen

if TYPE_CHECKING:
    from autogradviz.recorder.recorder import Recorder

_storage_address: Any = torch._C._storage_address  # type: ignore[attr-defined] # noqa: SLF001
_PLAIN: Final = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})


def version_of(tensor: torch.Tensor) -> int:
    """Return a tensor's version counter, NO_ID for one that has none (inference mode)."""
    try:
        return tensor._version  # noqa: SLF001 - has no public name
    except RuntimeError:
        return NO_ID


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class Window(NamedTuple):
    """What tensors of one shape and type share; there are few of them, and many tensors."""

    size: torch.Size
    shape: tuple[int, ...]
    dtype: str
    nbytes: int


class TensorTable:
    """Gives every distinct tensor a number and describes it once in the log."""

    def __init__(self, recorder: Recorder) -> None:
        self._threads = recorder.threads
        self._tell = recorder.teller(TensorSeen)
        self._lock = threading.RLock()  # a finaliser may run ops while we hold it
        self._ids: dict[Any, int] = {}
        self._storages: dict[int, int] = {}  # address → our number
        self._weak = array("Q")  # one reference a storage
        self._windows: dict[tuple[torch.Size, torch.dtype], Window] = {}
        self.storage_of = array("q")
        """Storages by tensor number, NO_ID where a tensor has none."""

    def number(self, tensor: torch.Tensor) -> int:
        """Return a tensor's number.

        Call it with PyTorch's function overrides switched off: reading ``shape`` of a tensor
        subclass is a function call that the subclass would see.
        """
        kind = type(tensor)
        if kind not in _PLAIN and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            return self._opaque(kind)
        try:
            address = _storage_address(tensor)
        except RuntimeError:  # sparse, functorch's wrappers
            return self._without_storage(tensor)
        key = (address, tensor.storage_offset(), tensor.shape, tensor.dtype)
        found = self._ids.get(key)
        return self._define(key, tensor) if found is None else found

    def storage_id(self, tensor_id: int) -> int | None:
        """Return the number of a tensor's storage, None where it has none."""
        storage_id = self.storage_of[tensor_id] if tensor_id >= 0 else NO_ID
        return None if storage_id == NO_ID else storage_id

    def _define(self, key: tuple[Any, ...], tensor: torch.Tensor) -> int:
        address, offset, size, dtype = key
        window = self._windows.get((size, dtype)) or self._window(tensor)
        storage = tensor.untyped_storage()
        with self._lock:
            storage_id = self._storages.get(address)
            if storage_id is None:
                weak: Any = storage._weak_ref()  # noqa: SLF001
                self._weak.append(weak)
                storage_id = self._storages[address] = len(self._storages)
            tensor_id = len(self.storage_of)
            self._ids[address, offset, window.size, dtype] = tensor_id
            self.storage_of.append(storage_id)
        self._tell(
            self._threads.state().number, None, tensor_id, storage_id, window.shape, window.dtype,
            "cpu" if tensor.is_cpu else str(tensor.device), window.nbytes, storage.nbytes(),
        )  # fmt: skip
        return tensor_id

    def _window(self, tensor: torch.Tensor) -> Window:
        size, dtype = tensor.shape, tensor.dtype
        shape = tuple([int(length) for length in size])  # symbolic sizes become numbers
        nbytes = tensor.numel() * tensor.element_size()
        window = Window(size, shape, _word(dtype), int(nbytes))
        self._windows[size, dtype] = window
        return window

    def _without_storage(self, tensor: torch.Tensor) -> int:
        key = (type(tensor), tuple(tensor.shape), tensor.dtype, str(tensor.layout))
        shape = tuple([int(length) for length in tensor.shape])
        return self._bare(key, shape, _word(tensor.dtype), str(tensor.device))

    def _opaque(self, kind: type) -> int:
        # A subclass with its own dispatch may answer ``shape`` with Python code of its own:
        # looking would run the user's code, so only its type is told.
        return self._bare(kind, (), kind.__name__, "")

    def _bare(self, key: Any, shape: tuple[int, ...], dtype: str, device: str) -> int:
        found = self._ids.get(key)
        if found is None:
            with self._lock:
                found = self._ids[key] = len(self.storage_of)
                self.storage_of.append(NO_ID)
            thread = self._threads.state().number
            self._tell(thread, None, found, None, shape, dtype, device, 0, 0)
        return found

    def close(self) -> None:
        """Give back every weak reference."""
        for weak in self._weak:
            torch.UntypedStorage._free_weak_ref(weak)  # noqa: SLF001
        self._weak = array("Q")
        self._storages.clear()
        self._ids.clear()
