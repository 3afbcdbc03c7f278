"""Tensors and storages, numbered without holding them.

NOTE [ Which storage is this? ]
A storage's address is reused as soon as it is freed, so an address alone would make two tensors
one. A weak reference (``UntypedStorage._weak_ref``) keeps the small C++ header, not the bytes:
while we hold it the address belongs to nobody else. All are given back by ``close``.

A tensor is a window on a storage: offset, shape and dtype. ``detach()``, ``alias`` and the
object that autograd saved are the same window, and the same tensor here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.events import NO_ID, TensorSeen

if TYPE_CHECKING:
    from autogradviz.recorder.recorder import Recorder

_PLAIN: Final = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})


def version_of(tensor: torch.Tensor) -> int:
    """Return a tensor's version counter, NO_ID for one that has none (inference mode)."""
    try:
        return tensor._version  # noqa: SLF001 - has no public name
    except RuntimeError:
        return NO_ID


class TensorTable:
    """Gives every distinct tensor a number and describes it once in the log."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._ids: dict[Any, int] = {}
        self._storages: dict[int, tuple[int, int]] = {}  # address → our number, weak reference
        self._storage_of: dict[int, int | None] = {}  # tensor id → storage id
        self._words: dict[tuple[torch.dtype, torch.device], tuple[str, str]] = {}

    def number(self, tensor: torch.Tensor) -> int:
        """Return a tensor's number.

        Call it with PyTorch's function overrides switched off: reading ``shape`` of a tensor
        subclass is a function call that the subclass would see.
        """
        kind = type(tensor)
        if kind not in _PLAIN and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            return self._opaque(kind)
        try:
            storage = tensor.untyped_storage()
            address = storage._cdata  # noqa: SLF001
        except (RuntimeError, NotImplementedError):  # sparse, functorch's wrappers
            return self._without_storage(tensor)
        key = (address, tensor.storage_offset(), tensor.shape, tensor.dtype)
        found = self._ids.get(key)
        return self._define(key, tensor, storage) if found is None else found

    def storage_id(self, tensor_id: int) -> int | None:
        """Return the number of a tensor's storage, None where it has none."""
        return self._storage_of.get(tensor_id)

    def _define(self, key: Any, tensor: torch.Tensor, storage: torch.UntypedStorage) -> int:
        address = key[0]
        known = self._storages.get(address)
        if known is None:
            weak: Any = storage._weak_ref()  # noqa: SLF001
            known = self._storages[address] = (len(self._storages), weak)
        nbytes = tensor.numel() * tensor.element_size()
        return self._add(key, tensor, known[0], nbytes, storage.nbytes())

    def _without_storage(self, tensor: torch.Tensor) -> int:
        key = (type(tensor), tuple(tensor.shape), tensor.dtype, str(tensor.layout))
        found = self._ids.get(key)
        return self._add(key, tensor, None, 0, 0) if found is None else found

    def _add(
        self, key: Any, tensor: torch.Tensor, storage_id: int | None, nbytes: int, whole: int
    ) -> int:
        tensor_id = self._ids[key] = len(self._ids)
        self._storage_of[tensor_id] = storage_id
        place = (tensor.dtype, tensor.device)
        words = self._words.get(place)
        if words is None:
            dtype, device = map(str, place)
            words = self._words[place] = (dtype.removeprefix("torch."), device)
        shape = tuple([int(size) for size in tensor.shape])  # symbolic sizes become numbers
        self._recorder.emit(TensorSeen, tensor_id, storage_id, shape, *words, nbytes, whole)
        return tensor_id

    def _opaque(self, kind: type) -> int:
        # A subclass with its own dispatch may answer ``shape`` with Python code of its own:
        # looking would run the user's code, so only its type is told.
        found = self._ids.get(kind)
        if found is None:
            found = self._ids[kind] = len(self._ids)
            self._storage_of[found] = None
            self._recorder.emit(TensorSeen, found, None, (), kind.__name__, "", 0, 0)
        return found

    def close(self) -> None:
        """Give back every weak reference."""
        for _, weak in self._storages.values():
            torch.UntypedStorage._free_weak_ref(weak)  # noqa: SLF001
        self._storages.clear()
        self._ids.clear()
