"""The addresses of storages that saves keep, and what keeps them."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import torch

from autogradviz.events import (
    NO_ID,
    StorageAddressSeen,
)
from autogradviz.recorder.torch_internals.private_api import data_address, is_copied_on_write
from autogradviz.recorder.torch_internals.wrapper_tensors import inner_tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from autogradviz.recorder.engine_interface import TensorIds
    from autogradviz.recorder.leaf_tensors_and_versions import LeafTable
    from autogradviz.recorder.session import Session
    from autogradviz.recorder.thread_state import ThreadState

# Only with ``record(annotate_memory=True)``. The addresses connect a recording with a snapshot
# (``autogradviz/memory_snapshots``). Since PyTorch 2.14 a live tensor can be annotated as well: the
# annotation is an entry of the snapshot's history, which memory_viz shows with the allocation.


Place = tuple[int, str]
"""A thread and a line, "train.py:31"; the line is "" if it is unknown."""


def _storage_address(tensor: torch.Tensor) -> int:
    """Return the address of the first byte of a tensor's storage, 0 if it has no memory.

    ``untyped_storage().data_ptr()`` would copy the memory of a lazy clone.
    """
    try:
        start: int = data_address(tensor)
    except (RuntimeError, NotImplementedError):  # sparse, functorch's wrappers
        return 0
    return start and start - int(tensor.storage_offset()) * tensor.element_size()


def _is_on_cuda(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda


class AddressTable:
    """Records where saved tensors, parameters and gradients are, and annotates the first."""

    def __init__(self, session: Session, tensors: TensorIds, leaves: LeafTable) -> None:
        self._session = session
        self._tensors = tensors
        self._leaves = leaves
        self._known: set[tuple[int | None, int, str]] = set()  # storage, address, role
        self._calls: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by thread
        self.module_name: Callable[[int], str] | None = None
        """Returns the name of a module of an id; set before the recording starts."""

    def module_changed(self, sequence_nr: int, state: ThreadState) -> None:
        """Remember which module's nodes have this sequence number and those that follow."""
        module_id = state.modules[-1] if state.modules else NO_ID
        self._calls[state.number].append((sequence_nr, module_id))

    def node_saved(
        self, node: Any, slots: Iterable[tuple[Any, ...]], sequence_nr: int | None, place: Place
    ) -> None:
        """Record the tensors in the slots of a node, which are not behind hooks.

        Args:
            node: an autograd node.
            slots: id, attribute and index of each save, and more.
            sequence_nr: that of the node.
            place: thread and line of the op that created the node.
        """
        name = node.name().rpartition("::")[2]
        thread, line = place
        calls = self._calls[thread]
        found = bisect_right(calls, (sequence_nr or 0, 1 << 62)) - 1
        module_id = calls[found][1] if found >= 0 else NO_ID
        for _, attribute, index, *_ in slots:
            if attribute:
                raw = getattr(node, attribute)
                part = "" if index is None else f"[{index}]"
                slot = f"{name}.{attribute.removeprefix('_raw_saved_')}{part}"
                tensor = (raw if index is None else raw[index]).data
                self._add(tensor, "saved", (slot, self._name(module_id), line))

    def packed(self, tensor: torch.Tensor, packed_by: str, state: ThreadState, line: str) -> None:
        """Record a tensor that a pair of hooks is about to pack, unless it is not kept."""
        if packed_by != "checkpoint":
            module_id = state.modules[-1] if state.modules else NO_ID
            words = "saved by a recomputation" if packed_by == "recompute" else "saved by hooks"
            self._add(tensor, "saved", (words, self._name(module_id), line))

    def kept(self, tensor: torch.Tensor, packed_by: str) -> None:
        """Record a tensor that is kept by no slot, and by no hook that was seen."""
        is_argument = packed_by == "checkpoint"
        words = "argument of a checkpoint region" if is_argument else "saved by hooks"
        self._add(tensor, "saved", (words, "", ""))

    def finish(self) -> None:
        """Record the parameters and their gradients."""
        for tensor_id in list(self._leaves.live_ids):
            leaf = self._leaves.get(tensor_id)
            if leaf is not None:
                self._add(leaf, "parameter", None)
                if leaf.grad is not None:
                    self._add(leaf.grad, "gradient", None, tensor_id)

    def _name(self, module_id: int) -> str:
        return "" if module_id == NO_ID or self.module_name is None else self.module_name(module_id)

    def _add(
        self, tensor: Any, role: str, words: tuple[str, ...] | None, tensor_id: int | None = None
    ) -> None:
        if not isinstance(tensor, torch.Tensor):
            return
        held = inner_tensor(tensor)
        target = tensor if held is None else held
        address = _storage_address(target)
        if not address:
            return
        if tensor_id is None:
            tensor_id = self._tensors.intern(tensor)
        known = (self._tensors.storage_id(tensor_id), address, role)
        if known in self._known:
            return
        self._known.add(known)
        self._session.emit(StorageAddressSeen, tensor_id, role, address, time.time_ns())
        annotate = getattr(torch.cuda.memory, "_annotate_tensor", None)
        if (
            words
            and annotate is not None
            and _is_on_cuda(target)
            and not is_copied_on_write(target)
        ):
            annotate(target, ", ".join(["autogradviz: " + words[0], *filter(None, words[1:])]))
