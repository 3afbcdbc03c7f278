"""What is saved for backward, by whom, and at which version.

NOTE [ The version at save ]
PyTorch does not show the version that a slot was saved at. It is the version of the op's
argument at dispatch, or of its result after the op; for what is neither (a clone made on the
way) the version at the first look; for a custom Function, the version when its forward ended.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from autogradviz.events import NO_ID, PackedBy, SlotSeen, TensorReleased, TensorSaved
from autogradviz.recorder.tensors import version_of

if TYPE_CHECKING:
    from autogradviz.recorder.recorder import Recorder
    from autogradviz.recorder.signatures import Arguments, OpResults

WIDE: Final = 5_000
"""An op with more inputs than this is not looked behind: one look would touch them all."""


class OpTensors(NamedTuple):
    """Which tensors an op took and gave, with their versions."""

    seq: int
    tensor_ids: tuple[int, ...]
    versions: tuple[int, ...]
    hashes: tuple[int, ...]


class Packed:
    """One save that went through hooks."""

    __slots__ = (
        "holder",
        "node_id",
        "original",
        "saved_hash",
        "saved_id",
        "unpacked",
        "version",
    )

    def __init__(
        self,
        saved_id: int,
        version: int | None,
        original: Any,
        saved_hash: int | None,
    ) -> None:
        self.saved_id = saved_id
        self.version = version
        self.original = original  # weak, or None
        self.saved_hash = saved_hash
        self.node_id: int | None = None
        self.unpacked = 0
        self.holder: weakref.ref[Any] | None = None  # what the hook returned


class SaveTable:
    """Numbers saves and remembers what is needed to recognise them later."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._count = 0
        self._ops: dict[int, OpTensors | list[OpTensors]] = {}  # by sequence number
        self._packed: dict[int, list[Packed]] = {}  # by the address of what the hook returned
        self._address_of: dict[int, int] = {}  # saved id → that address
        self.wide: set[int] = set()
        self.custom: dict[int, int | None] = {}
        """Where custom Functions saved, or ran their first op: stacks by sequence number."""

    def op_created(
        self, sequence_nr: int, seq: int, arguments: Arguments, results: OpResults
    ) -> None:
        """Remember the op that created a node."""
        if len(arguments.ids) > WIDE:
            self.wide.add(sequence_nr)
        written = {tensor_id for tensor_id, _, _ in arguments.written}
        kept = [i for i, tensor_id in enumerate(arguments.ids) if tensor_id not in written]
        hashes = arguments.hashes or (NO_ID,) * len(arguments.ids)
        tensors = OpTensors(
            seq,
            (*results.ids, *[arguments.ids[i] for i in kept]),
            (*results.versions, *[arguments.versions[i] for i in kept]),
            (*(results.hashes or (NO_ID,) * len(results.ids)), *[hashes[i] for i in kept]),
        )
        other = self._ops.get(sequence_nr)
        if other is None:
            self._ops[sequence_nr] = tensors
        elif isinstance(other, list):
            other.append(tensors)
        else:  # two threads share the number
            self._ops[sequence_nr] = [other, tensors]

    def _created(self, sequence_nr: int) -> list[OpTensors]:
        """Return the ops that created a node of that number, one a thread."""
        found = self._ops.get(sequence_nr)
        if found is None:
            return []
        return found if isinstance(found, list) else [found]

    def hash_saved(self, sequence_nr: int, tensor_id: int) -> int | None:
        """Return a tensor's fingerprint when a node saved it, None where none was taken."""
        for op in self._created(sequence_nr):
            if tensor_id in op.tensor_ids:
                saved = op.hashes[op.tensor_ids.index(tensor_id)]
                return None if saved == NO_ID else saved
        return None

    def version_saved(self, sequence_nr: int, tensor_id: int) -> int | None:
        """Return the version at which a node saved a tensor, None where nothing tells."""
        candidates = self._created(sequence_nr)
        storage_of = self._recorder.tensors.storage_id
        storage_id = storage_of(tensor_id)
        for op in candidates:
            if tensor_id in op.tensor_ids:
                return op.versions[op.tensor_ids.index(tensor_id)]
        for op in candidates:  # another window on the same storage shares its counter
            for other, version in zip(op.tensor_ids, op.versions, strict=True):
                if storage_id is not None and storage_of(other) == storage_id:
                    return version
        if candidates or not self._ops:
            return None
        following = self._created(sequence_nr + 1)
        return self._recorder.versions.at(tensor_id, following[0].seq) if following else None

    def new(
        self,
        tensor: torch.Tensor | None,
        *,
        packed_by: PackedBy,
        node_id: int | None = None,
        sequence_nr: int | None = None,
        slot: str | None = None,
        version: int | None = None,
        region: tuple[int | None, int | None] = (None, None),
        position: int | None = None,
        stack_id: int | None = None,
    ) -> int:
        """Record one save; return its number."""
        tensor_id = NO_ID if tensor is None else self._recorder.tensors.number(tensor)
        saved_id = self._count
        self._count += 1
        self._recorder.emit(
            TensorSaved, saved_id, node_id, sequence_nr, slot, tensor_id, version, packed_by,
            region[0], region[1], position,
            stack_id=stack_id,
        )  # fmt: skip
        return saved_id

    def packing(
        self,
        tensor: torch.Tensor,
        packed_by: PackedBy,
        region: tuple[int | None, int | None],
        position: int | None,
    ) -> Packed:
        """Record a save that is on its way through hooks."""
        recorder = self._recorder
        sequence_nr = torch._C._autograd._get_sequence_nr() - 1  # noqa: SLF001
        stack_id = self.custom.get(sequence_nr)
        if stack_id is None and recorder.with_stacks:
            stack_id = recorder.stacks.capture(4)
        found = version_of(tensor)
        version = None if found == NO_ID else found
        saved_id = self.new(
            tensor,
            packed_by=packed_by,
            sequence_nr=sequence_nr,
            version=version,
            region=region,
            position=position,
            stack_id=stack_id,
        )
        # A checkpoint's holders know nothing of the tensor; other pairs keep it or a copy, and
        # PyTorch's check is off for them, so its version is read again at unpack.
        watch = packed_by in {"user", "allow_mutation", "offload"}
        original = weakref.ref(tensor) if watch else None
        return Packed(saved_id, version, original, recorder.hash_of(tensor))

    def packed(self, save: Packed, result: Any) -> None:
        """Remember what the pack hook made of a save."""
        for other in self._packed.get(id(result), ()):
            if other.holder is not None and other.holder() is not result:
                self.released(other.saved_id)  # its graph died unseen, and the address is used anew
        with suppress(TypeError):  # numbers, tuples
            save.holder = weakref.ref(result)
        self._packed.setdefault(id(result), []).append(save)
        self._address_of[save.saved_id] = id(result)

    def find(self, result: Any, node_id: int | None) -> Packed | None:
        """Return the save that a hook packed as ``result``: this node's, the least used."""
        candidates = self._packed.get(id(result), ())
        best = None
        for save in candidates:
            if node_id is not None and save.node_id not in {None, node_id}:
                continue
            if best is None or save.unpacked < best.unpacked:
                best = save
        return best

    def slot_found(self, result: Any, node_id: int, slot: str) -> Packed | None:
        """Give a hooked save its node and slot."""
        for save in self._packed.get(id(result), ()):
            if save.node_id is None:
                save.node_id = node_id
                self._recorder.emit(SlotSeen, save.saved_id, node_id, slot)
                return save
        return None

    def released(self, saved_id: int) -> None:
        """Record that a slot gave its tensor up."""
        self._recorder.emit(TensorReleased, saved_id)
        address = self._address_of.pop(saved_id, None)
        if address is not None:
            left = [save for save in self._packed[address] if save.saved_id != saved_id]
            if left:
                self._packed[address] = left
            else:
                del self._packed[address]
