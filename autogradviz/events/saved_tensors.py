"""Tensors that nodes save and unpack, and versions of storages."""

from __future__ import annotations

from dataclasses import dataclass

from autogradviz.events.base import Event, PackedBy
from autogradviz.events.field_types import (
    EventSeq,
    NodeId,
    OpSeq,
    RecomputeId,
    RegionId,
    SavedId,
    StorageId,
    TensorId,
    event,
)


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSaved(Event):
    """A node saved a tensor for backward.

    Default saves are read when the recorder walks the graph, which may be much later than the
    op: the save itself happened in the op with the same ``sequence_nr``. Saves through hooks are
    recorded at once, before their slot is known; ``SlotSeen`` follows.
    """

    saved_id: SavedId
    node_id: NodeId | None
    sequence_nr: int | None  # of the node that saved it
    slot: str | None  # "self", "result", "saved_tensors[0]"
    tensor_id: TensorId  # NO_ID where a user's pack hook returned no tensor
    version: int | None  # counter when saved, None where unknown
    packed_by: PackedBy
    region_id: RegionId | None
    recompute_id: RecomputeId | None
    position: int | None  # position among the saves of its region or recomputation, from 0


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSeen(Event):
    """The node and slot of an earlier ``TensorSaved`` that went through hooks became known."""

    saved_id: SavedId
    node_id: NodeId
    slot: str


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class TensorUnpacked(Event):
    """A node unpacked a saved tensor.

    The versions differ if the tensor was written in between. PyTorch raises then, except under
    saved-tensor hooks, which disable its check.
    """

    saved_id: SavedId
    node_id: NodeId | None
    version: int | None  # when saved
    seen_version: int | None  # when unpacked, None where only the hooks know
    failed: bool  # the unpack hook raised
    saved_hash: int | None  # of the values when saved, None without fingerprints
    seen_hash: int | None  # of the values passed to backward


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWritten(Event):
    """The result of a user's pack hook was written before the unpack hook ran."""

    saved_id: SavedId
    tensor_id: TensorId  # the result, or a tensor in it
    since_seq: EventSeq  # events with larger numbers happened after packing
    version: int | None  # of that tensor after packing
    seen_version: int | None  # before unpacking
    saved_hash: int | None  # of its values after packing, None without fingerprints
    seen_hash: int | None  # before unpacking


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMoved(Event):
    """``save_on_cpu`` copied a saved tensor to the CPU when packing, or back when unpacking.

    A tensor that is on the CPU already is not copied, except into pinned memory.
    """

    saved_id: SavedId
    device: str  # the destination
    nbytes: int
    pinned: bool  # the copy on the CPU is in pinned memory


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class SavedStorageFreed(Event):
    """The storage of a tensor that hooks packed had been freed when they unpacked it.

    The hooks of a user or of ``save_on_cpu`` kept a copy, or what computes the tensor again.
    """

    saved_id: SavedId


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class TensorReleased(Event):
    """A slot released its tensor: its node ran without ``retain_graph``, or was freed."""

    saved_id: SavedId


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class VersionBumped(Event):
    """The version counter of a tensor increased: the tensor was written."""

    tensor_id: TensorId
    storage_id: StorageId | None
    version: int  # before
    seen_version: int  # after
    op: str  # "aten.add_.Tensor", "increment_version", or "" if the write was not observed
    op_seq: OpSeq | None


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRestored(Event):
    """PyTorch restored a version counter (``_unsafe_preserve_version_counter``).

    The writer asserts that the values that autograd saved are unchanged. Sharded modules do this
    when they gather a parameter again.
    """

    tensor_id: TensorId
    storage_id: StorageId | None
    version: int  # before; equal if no write was seen to move the counter
    seen_version: int  # after


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class MutationCloned(Event):
    """``allow_mutation_on_saved_tensors`` cloned a saved tensor before an in-place op."""

    tensor_id: TensorId  # the tensor about to be written
    storage_id: StorageId | None
    clone_id: TensorId  # the tensor that backward will use
    op_seq: OpSeq | None  # the clone
