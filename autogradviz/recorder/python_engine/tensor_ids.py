"""Ids of tensors and storages, assigned without keeping them alive.

NOTE [ Identity of storages ]
PyTorch keeps the Python object of a storage as long as the storage lives, so its address identifies
the storage. The address is reused as soon as the storage is freed, which would make one tensor of
two; a weak reference to the object shows whether it is still the same. Dead storages stay in the
table until their address is reused, or until the table has doubled. PyTorch's own weak references
(``UntypedStorage._weak_ref``) keep the C++ header of each dead storage: a thousand small holes
between the user's tensors, which cost a backward a tenth of its memory.

A tensor is a window on a storage: offset, shape and dtype. ``detach()``, ``alias`` and the object
that autograd saved are the same window, and the same tensor here.
"""

from __future__ import annotations

import weakref
from array import array
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from autogradviz.events import (
    NO_ID,
    DistributedTensorSeen,
    StoragesFreed,
    StridesSeen,
    TensorSeen,
)
from autogradviz.recorder import engine_interface
from autogradviz.recorder.python_engine.int_map import IntMap, grow
from autogradviz.recorder.torch_internals.private_api import shape_of
from autogradviz.recorder.torch_internals.unreadable_tensors import (
    LIMITS,
    FakeTensor,
    class_text,
    why_unreadable,
)
from autogradviz.recorder.torch_internals.wrapper_tensors import (
    NO_LAYOUT,
    PLAIN_TENSORS,
    inner_tensor,
    layout_number,
    layout_of,
    version_of,
)
from autogradviz.support.locks_gc_and_stderr import new_lock

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from autogradviz.recorder.session import Session

_Tensor: Final = torch.Tensor


def _is_symbolic(tensor: torch.Tensor) -> bool:
    """Return whether a fake tensor has symbolic sizes; a number of one would be a guard."""
    return any(type(length) is not int for length in (*tensor.shape, tensor.storage_offset()))


_reference: Final = weakref.ref


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


Window: TypeAlias = tuple[Any, tuple[int, ...], torch.dtype]
"""Offset, shape and dtype."""

Description: TypeAlias = tuple[Window, tuple[int, ...], str, int]
"""The values shared by all tensors of one window: the window, shape, dtype, bytes."""


Storage: TypeAlias = tuple[
    Window, int, int, weakref.ref[torch.UntypedStorage], dict[Window, int] | None
]
"""A storage: window and id of its first tensor, its own id, a weak reference to it.

The last item has the ids of its other tensors, if there are any.
"""


def _note_freed(freed: list[int], storage_id: int, _reference: object) -> None:
    """Note that a storage was freed; this may interrupt anything, so it emits no event."""
    freed.append(storage_id)


_SWEEP: Final = 1_000
"""Dead storages are removed when there are this many more than twice the live ones."""


class TensorTable:
    """Assigns an id to every distinct tensor and describes it once in the log."""

    def __init__(self, session: Session) -> None:
        self._threads = session.threads
        self._sequence = session.sequence
        self._emit = session.emitter(TensorSeen)
        self._emit_strides = session.emitter(StridesSeen)
        self._emit_distributed = session.emitter(DistributedTensorSeen)
        self._append = session.log.appender(TensorSeen)
        self._limit = session.limit
        self._lock = new_lock()  # a finalizer may run ops while we hold it
        self._bare_ids: dict[Any, int] = {}  # of tensors without a storage
        self._inner_of: dict[int, int] = {}  # by wrapper, the tensor that it holds
        self._storages: dict[int, Storage] = {}  # by address, dead ones among them
        self._sweep_at = _SWEEP
        self._count = 0
        self._storage_count = 0
        self._described: dict[Window, Description] = {}
        self._emit_storages_freed = session.emitter(StoragesFreed)
        self.freed: list[int] | None = [] if session.with_memory else None
        """Ids of storages that were freed and not recorded yet; None unless they are recorded."""
        self.storage_of: array[int] | IntMap = array("q")
        """Storage id by tensor id, NO_ID if the tensor has no storage."""

    def intern(
        self,
        tensor: torch.Tensor,
        thread: int | None = None,
        is_result: bool = False,  # noqa: FBT001, FBT002 - see NOTE [ Cost of an event ]
    ) -> int:
        """Return a tensor's id.

        Call it with function overrides disabled: reading ``shape`` of a tensor subclass is a
        function call that the subclass would intercept.

        Args:
            tensor: any tensor.
            thread: number of the calling thread, if the caller knows it.
            is_result: an op has just returned it.
        """
        kind = type(tensor)
        try:
            if kind is _Tensor or kind in PLAIN_TENSORS:
                window = (tensor.storage_offset(), tensor.shape, tensor.dtype)
            elif kind.__torch_dispatch__ is not _Tensor.__torch_dispatch__:
                if kind is not FakeTensor or _is_symbolic(tensor):
                    return self._wrapper(tensor, kind)
                window = (tensor.storage_offset(), tensor.shape, tensor.dtype)
            else:
                window = (tensor.storage_offset(), shape_of(tensor), tensor.dtype)
            storage = tensor.untyped_storage()
        except RuntimeError:  # sparse, functorch's wrappers, nested tensors of no one shape
            return self._without_storage(tensor)
        known = self._storages.get(id(storage))
        if known is not None and known[3]() is storage:
            if known[0] == window:
                return known[1]
            others = known[4]
            if others is not None and window in others:
                return others[window]
        return self._define(storage, window, tensor, thread, is_result)

    def intern_all(self, tensors: list[torch.Tensor]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ids of tensors, and their versions."""
        return tuple(map(self.intern, tensors)), tuple(map(version_of, tensors))

    def intern_by_shape(self, tensor: torch.Tensor) -> int:
        """Return one id for all tensors of a shape, dtype and device; for untracked gradients.

        It costs a fifth of ``intern``, and is called like it.
        """
        if type(tensor) is not _Tensor:
            return self.intern(tensor)
        try:
            key = (tensor.get_device(), tensor.shape, tensor.dtype)
        except RuntimeError:  # as in intern
            return self.intern(tensor)
        found = self._bare_ids.get(key)
        if found is None:
            nbytes = tensor.numel() * tensor.element_size()
            word, device = _dtype_name(tensor.dtype), str(tensor.device)
            found = self._bare(key, tuple(tensor.shape), word, device, nbytes)
        return found

    def storage_id(self, tensor_id: int) -> int | None:
        """Return the id of a tensor's storage, None if it has none."""
        storage_id = self.storage_of[tensor_id] if tensor_id >= 0 else NO_ID
        return None if storage_id == NO_ID else storage_id

    def id_of_storage(self, storage: torch.UntypedStorage) -> int | None:
        """Return the id of a storage, None if no tensor of it was seen."""
        known = self._storages.get(id(storage))
        return known[2] if known is not None and known[3]() is storage else None

    def _define(
        self,
        storage: torch.UntypedStorage,
        window: Window,
        tensor: torch.Tensor,
        thread: int | None,
        is_result: bool,  # noqa: FBT001
    ) -> int:
        try:
            # The tuple is equal to the size, and no load on the garbage collector.
            window, shape, word, nbytes = self._described[window]
        except KeyError:
            window, shape, word, nbytes = self._describe(window, tensor)
        address = id(storage)
        lock = self._lock
        lock.acquire()  # which costs half of what a with block does
        try:
            storages = self._storages
            tensor_id = self._count
            self._count = tensor_id + 1
            known = storages.get(address)
            if known is not None and known[3]() is not storage:
                known = None  # dead: its address was reused
            storage_id = self._storage_count if known is None else known[2]
            try:
                self.storage_of[tensor_id] = storage_id
            except IndexError:
                grow(self.storage_of, tensor_id)
                self.storage_of[tensor_id] = storage_id
            # Entries are complete when they are added: other threads read without the lock.
            if known is None:
                self._storage_count = storage_id + 1
                freed = self.freed
                reference = _reference(
                    storage, None if freed is None else partial(_note_freed, freed, storage_id)
                )
                storages[address] = (window, tensor_id, storage_id, reference, None)
                if len(storages) > self._sweep_at:
                    self._sweep()
            elif known[4] is None:
                storages[address] = (*known[:4], {window: tensor_id})
            else:
                known[4][window] = tensor_id
        finally:
            lock.release()
        # An emitter, inlined: as many tensors are recorded as operators.
        if thread is None:
            thread = self._threads.local.state.number
        sequence, append = self._sequence, self._append
        next_number = sequence.number
        sequence.newest = seq = next_number()
        if seq >= sequence.due:
            sequence.on_due(seq)
        append((
            seq, sequence.time_ns(thread), thread, None, tensor_id, storage_id, shape, word,
            "cpu" if tensor.is_cpu else str(tensor.device), nbytes, len(storage),
        ))  # fmt: skip
        if not is_result and (window[0] or not tensor.is_contiguous()):
            self._emit_strides(thread, None, tensor_id, tensor.stride(), window[0])
        return tensor_id

    def _describe(self, window: Window, tensor: torch.Tensor) -> Description:
        offset, size, dtype = window
        shape = tuple([int(length) for length in size])  # symbolic sizes become numbers
        nbytes = int(tensor.numel() * tensor.element_size())
        window = (offset, shape, dtype)
        found = self._described[window] = (window, shape, _dtype_name(dtype), nbytes)
        return found

    def _without_storage(self, tensor: torch.Tensor) -> int:
        size = torch.Size() if tensor.is_nested else shape_of(tensor)
        key = (type(tensor), tuple(size), tensor.dtype, str(tensor.layout))
        shape = tuple([int(length) for length in size])
        self._limit("tensors", LIMITS["tensors"].format(kind=why_unreadable(tensor)))
        return self._bare(key, shape, _dtype_name(tensor.dtype), str(tensor.device))

    def _wrapper(self, tensor: torch.Tensor, kind: type) -> int:
        """Return the id of a tensor of a class with its own dispatch.

        A ``DTensor`` has the shape of the whole tensor, and the storage of its local part. It has a
        version counter of its own, so it does not count as a tensor of that storage here.
        """
        inner = inner_tensor(tensor)
        if inner is None:
            return self._opaque(kind)
        inner_id = self.intern(inner)
        shape = tuple([int(length) for length in shape_of(tensor)])
        layout = layout_number(tensor)
        key = (kind, inner_id, shape, layout)
        found = self._bare_ids.get(key)
        if found is not None:
            return found
        nbytes = storage_nbytes = 0
        if self.storage_of[inner_id] != NO_ID:
            nbytes = inner.numel() * inner.element_size()
            storage_nbytes = inner.untyped_storage().nbytes()
        found = self._bare(
            key, shape, _dtype_name(tensor.dtype), str(tensor.device), nbytes,
            self.storage_id(inner_id), storage_nbytes,
        )  # fmt: skip
        if self.storage_of[inner_id] != NO_ID:
            self._inner_of[found] = inner_id
        if layout != NO_LAYOUT:
            thread = self._threads.local.state.number
            self._emit_distributed(thread, None, found, inner_id, *layout_of(layout))
        return found

    def _opaque(self, kind: type) -> int:
        # A subclass with its own dispatch may implement ``shape`` in Python: reading it would run
        # the user's code, so only the class is recorded.
        text = "fake tensors" if kind is FakeTensor else class_text(kind)
        self._limit("tensors", LIMITS["tensors"].format(kind=text))
        return self._bare(kind, (), kind.__name__, "")

    def _bare(
        self, key: Any, shape: tuple[int, ...], dtype: str, device: str, nbytes: int = 0,
        storage_id: int | None = None, storage_nbytes: int = 0,
    ) -> int:  # fmt: skip
        found = self._bare_ids.get(key)
        if found is None:
            with self._lock:
                found = self._count
                self._count = found + 1
                grow(self.storage_of, found)
                self._bare_ids[key] = found
            thread = self._threads.local.state.number
            self._emit(
                thread, None, found, storage_id, shape, dtype, device, nbytes, storage_nbytes
            )
        return found

    def prune(self, used: AbstractSet[int]) -> None:
        """Remove dead storages, and unused windows on live ones if there are too many.

        Args:
            used: ids of tensors that must keep their id while they live.
        """
        with self._lock:
            self._sweep()
            others = [storage[4] or () for storage in self._storages.copy().values()]
            if len(self._bare_ids) + sum(map(len, others)) > engine_interface.MAX_WINDOWS:
                self._prune_windows(used)
            if len(self._described) > engine_interface.MAX_WINDOWS:
                self._described.clear()
            self.storage_of = IntMap((each, self.storage_of[each]) for each in self.live_ids)

    def _prune_windows(self, used: AbstractSet[int]) -> None:
        bare = self._bare_ids.copy().items()
        self._bare_ids = {key: each for key, each in bare if each in used}
        for address, storage in self._storages.copy().items():
            if storage[4] is not None:
                kept = {window: each for window, each in storage[4].items() if each in used}
                self._storages[address] = (*storage[:4], kept or None)

    @property
    def live_ids(self) -> AbstractSet[int]:
        """The ids of the tensors that may be seen again."""
        found = set[int]()
        for _, first, _, reference, others in self._storages.copy().values():
            if reference() is not None:
                found.add(first)
                found.update(others.values() if others else ())
        bare, inner = list(self._bare_ids.values()), self._inner_of
        # A wrapper lives no longer than what it holds.
        return found.union([each for each in bare if each not in inner or inner[each] in found])

    @property
    def live_storage_ids(self) -> AbstractSet[int]:
        """The ids of the storages that are alive."""
        found = self._storages.copy().values()
        return {storage_id for _, _, storage_id, reference, _ in found if reference() is not None}

    def live_storages(self) -> list[int]:
        """Return one tensor of each storage that is alive."""
        found = self._storages.copy().values()
        return [first for _, first, _, reference, _ in found if reference() is not None]

    def live_nbytes(self) -> dict[int, int]:
        """Return the bytes of each storage that is alive, by its id."""
        found = [(each[2], each[3]()) for each in self._storages.copy().values()]
        return {key: storage.nbytes() for key, storage in found if storage is not None}

    def emit_freed(self) -> None:
        """Record the storages that were freed since the last call."""
        found = []
        with suppress(IndexError):  # another thread may take some, or free others
            while self.freed:
                found.append(self.freed.pop())
        if found:
            self._emit_storages_freed(self._threads.local.state.number, None, tuple(found))

    def _sweep(self) -> None:
        """Remove dead storages."""
        for address, storage in self._storages.copy().items():  # a finalizer may add some
            if storage[3]() is None and self._storages.get(address) is storage:
                del self._storages[address]
        self._sweep_at = 2 * len(self._storages) + _SWEEP

    def close(self) -> None:
        """Remove everything."""
        self._storages.clear()
        self._bare_ids.clear()
        self._inner_of.clear()
