"""The memory of a device when an allocation on it failed, by what held it.

Each live storage counts once, with all of its bytes: as a parameter or buffer, a gradient, state of
an optimizer, a saved tensor, or as another one. What a device's allocator counts beyond that is
unaccounted for: temporaries inside of operators, and tensors that only C++ or another library has.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autogradviz.events import (
    MemoryHeld,
    OptimizerAlive,
    OutOfMemory,
    OutOfMemoryLeft,
    ParameterSeen,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis.analysis import Analysis
    from autogradviz.analysis.types import Op, SavedTensor, SourceLocation, Tensor

HeldKind: TypeAlias = Literal[
    "parameters", "gradients", "optimizer state", "saved", "recomputed", "other"
]
"""The kind of a live storage. Those that only a recomputation saved are apart."""

_PRODUCTS: Final = {"mm", "addmm", "bmm", "baddbmm", "matmul", "linear"}
_EVENT_KINDS: Final[tuple[tuple[str, HeldKind], ...]] = (
    ("parameter", "parameters"),
    ("gradient", "gradients"),
    ("optimizer state", "optimizer state"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveStorage:
    """One storage that was alive."""

    storage_id: int
    tensor: Tensor
    nbytes: int
    kind: HeldKind
    saved: SavedTensor | None  # the save that held it first
    op: Op | None  # that created it
    step: int  # in which it was created or saved, from 0; that of the failure if it is unknown
    module: str
    location: SourceLocation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAtFailure:
    """The live storages of a device when an allocation failed, and that allocation."""

    failure: OutOfMemory
    op: Op | None  # that raised
    location: SourceLocation | None
    node_location: SourceLocation | None  # the forward line of the node that ran
    seq: int  # events with smaller numbers had happened
    step: int
    left: bool  # the exception left the block
    requested: int | None
    is_estimate: bool  # the message does not have the bytes requested
    storages: tuple[LiveStorage, ...]
    optimizers: tuple[OptimizerAlive, ...]

    def nbytes(self, *kinds: HeldKind) -> int:
        """Return the bytes of the storages of some kinds."""
        return sum(each.nbytes for each in self.storages if each.kind in kinds)

    @property
    def total(self) -> int:
        """The bytes that were in use: the allocator's number, else the sum of all storages."""
        known = sum(each.nbytes for each in self.storages)
        return max(known, self.failure.allocated_nbytes or 0)

    @property
    def unaccounted(self) -> int | None:
        """The bytes that the allocator counts beyond the storages; None without an allocator."""
        allocated = self.failure.allocated_nbytes
        if allocated is None:
            return None
        return max(0, allocated - sum(each.nbytes for each in self.storages))

    @property
    def is_larger_than_device(self) -> bool:
        """Whether the allocation that failed is larger than all memory of the device."""
        capacity = self.failure.capacity_nbytes
        return capacity is not None and self.requested is not None and self.requested > capacity

    @property
    def available(self) -> int | None:
        """The bytes that PyTorch could use at most; None if they are not known."""
        failure = self.failure
        if failure.allocated_nbytes is not None and failure.free_nbytes is not None:
            return failure.allocated_nbytes + failure.free_nbytes
        if failure.free_nbytes is not None:
            return self.total + failure.free_nbytes
        return failure.capacity_nbytes if failure.allocated_nbytes is not None else None

    @property
    def shortfall(self) -> int:
        """The bytes that were missing; all that were requested if nothing is known to be free."""
        requested = self.requested or 0
        return requested if self.available is None else requested + self.total - self.available

    def by_place(self, *kinds: HeldKind) -> list[tuple[str, str, int, int, SourceLocation | None]]:
        """Return module, line, step, bytes and location of storages, the largest sum first."""
        sums: dict[tuple[str, str, int], int] = defaultdict(int)
        places: dict[tuple[str, str, int], SourceLocation | None] = {}
        for each in self.storages:
            if each.kind in kinds:
                key = each.module, str(each.location or ""), each.step
                sums[key] += each.nbytes
                places[key] = each.location
        ordered = sorted(sums, key=lambda key: (-sums[key], key))
        return [(*key, sums[key], places[key]) for key in ordered]


def memory_at_failure(analysis: Analysis) -> MemoryAtFailure | None:
    """Return the memory at the failure that ended the block, else at the last one; None without."""
    failures = analysis.log.of(OutOfMemory)
    if not failures:
        return None
    left = {event.failure_seq for event in analysis.log.of(OutOfMemoryLeft)}
    with_memory = {event.failure_seq for event in analysis.log.of(MemoryHeld)}
    known = [each for each in failures if each.seq in with_memory] or failures
    failure = next((each for each in failures if each.seq in left), known[-1])
    op = None if failure.op_seq is None else analysis.op_at(failure.op_seq)
    seq = failure.seq if op is None else op.seq
    node = None
    if op is not None and op.backward_node_id is not None:
        node = analysis.graph.nodes.get(op.backward_node_id)
    estimate = None if op is None else result_nbytes(op)
    requested = failure.requested_nbytes
    return MemoryAtFailure(
        failure=failure,
        op=op,
        location=(op.location if op is not None else None) or analysis.location(failure.stack_id),
        node_location=None if node is None else node.location,
        seq=seq,
        step=analysis.steps.at(seq),
        left=failure.seq in left,
        requested=estimate if requested is None else requested,
        is_estimate=requested is None,
        storages=tuple(_live_storages(analysis, failure, seq)),
        optimizers=tuple(
            each for each in analysis.log.of(OptimizerAlive) if each.failure_seq == failure.seq
        ),
    )


def _live_storages(analysis: Analysis, failure: OutOfMemory, seq: int) -> Iterator[LiveStorage]:
    live, kinds = _live_tensors(analysis, failure)
    held = _held_saves(analysis, failure.seq, seq)
    last = analysis.steps.at(seq)
    for storage_id, tensor in live.items():
        op, module = analysis.creators.get(storage_id), ""
        first = location = None
        if op is not None:
            first, location, module = op.seq, op.location, analysis.module_title(op)
        kind, saved = kinds.get(storage_id, "other"), None
        if storage_id in held:
            saved, module = held[storage_id]
            first, location = saved.saved_seq, saved.location or location
            if storage_id not in kinds:
                kind = "recomputed" if saved.packed_by == "recompute" else "saved"
        yield LiveStorage(
            storage_id=storage_id,
            tensor=tensor,
            nbytes=tensor.storage_nbytes,
            kind=kind,
            saved=saved,
            op=op,
            step=last if first is None else analysis.steps.at(first),
            module=module,
            location=location,
        )


def _live_tensors(
    analysis: Analysis, failure: OutOfMemory
) -> tuple[dict[int, Tensor], dict[int, HeldKind]]:
    """Return a tensor of each live storage of the device, and the kinds that are known, by id."""
    tensors = analysis.tensors
    live: dict[int, Tensor] = {}
    found: dict[str, set[int]] = defaultdict(set)
    for event in analysis.log.of(MemoryHeld):
        if event.failure_seq != failure.seq:
            continue
        for tensor in map(tensors.__getitem__, event.tensor_ids):
            if tensor.storage_id is not None and tensor.device == failure.device:
                live[tensor.storage_id] = tensor
                found[event.held_as].add(tensor.storage_id)
    for parameter in analysis.log.of(ParameterSeen):
        storage_id = tensors[parameter.tensor_id].storage_id
        if storage_id in live and storage_id is not None:
            found["parameter"].add(storage_id)
    kinds: dict[int, HeldKind] = {}
    for held_as, kind in reversed(_EVENT_KINDS):  # the first of them counts
        kinds.update(dict.fromkeys(found[held_as], kind))
    return live, kinds


def _held_saves(
    analysis: Analysis, failure_seq: int, seq: int
) -> dict[int, tuple[SavedTensor, str]]:
    """Return the save that held each storage, with its module, by storage.

    The saves of the newest graph are read when the failure is recorded, after the op.
    """
    return {
        storage.storage_id: (analysis.saved[hold.saved_id], storage.module)
        for storage in analysis.saved_memory.storages
        for hold in reversed(storage.holds)
        if hold.start_seq <= failure_seq and (hold.end_seq is None or hold.end_seq > seq)
    }


def result_nbytes(op: Op) -> int | None:
    """Return the bytes of an op's result as its operands suggest; None if they do not."""
    if not op.inputs:
        return None
    shapes = [tensor.shape for tensor in op.inputs]
    first = op.inputs[0]
    item = first.nbytes // max(1, prod(first.shape)) if first.shape else first.nbytes
    if op.name in _PRODUCTS and len(shapes[-1]) >= 1 and len(shapes[-2:]) > 1:
        left, right = shapes[-2:]
        if len(left) > 1 and len(right) > 1:
            return prod(left[:-1]) * right[-1] * item
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    broadcast: list[int] = [max(sizes) for sizes in zip(*padded, strict=True)]
    return prod(broadcast) * item
