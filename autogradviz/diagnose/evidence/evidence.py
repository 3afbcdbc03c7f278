"""Facts about a recording that several rules need."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from functools import cached_property, wraps
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from autogradviz.analysis.causal_graph import RUNNING_STATISTICS, CausalGraph
from autogradviz.analysis.op_calls_and_arguments import is_view
from autogradviz.diagnose.source.files_imported_by_user import with_imported
from autogradviz.events import (
    ErrorRaised,
    FrameSeen,
    NodeFinished,
    ParameterSeen,
    RandomDrawn,
    RecomputeStarted,
    RecordingStarted,
    RegionEntered,
    VersionRestored,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from autogradviz.analysis import (
        Analysis,
        Edge,
        Node,
        Op,
        Recomputation,
        Region,
        SavedTensor,
        SourceLocation,
        Tensor,
        Unpack,
    )
    from autogradviz.events import BackwardStarted

_T = TypeVar("_T")

_UPDATES: Final = frozenset(
    {"add_", "sub_", "mul_", "lerp_", "addcmul_", "index_add_", "scatter_add_", "logical_or_"}
)
"""In-place ops whose result depends on the old values."""

_FILLS: Final = frozenset({"copy_", "zero_", "fill_"})
"""In-place ops whose result does not depend on the old values."""

_OPTIONS: Final = {"values": "fingerprints"}  # options that were renamed

_seq: Final = attrgetter("seq")


def once_per_recording(find: Callable[[Evidence], _T]) -> Callable[[Evidence], _T]:
    """Return a function that computes its result on the first call; callers must not change it."""

    @wraps(find)
    def cached(evidence: Evidence) -> _T:
        if find not in evidence.found:
            evidence.found[find] = find(evidence)
        found: _T = evidence.found[find]
        return found

    return cached


class Evidence:
    """The analysis of a recording, with indices that are built on first use."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.found: dict[Callable[[Evidence], Any], Any] = {}
        """The results of functions with ``once_per_recording``."""

    @cached_property
    def causal_graph(self) -> CausalGraph:
        """The values, ops and gradients of the recording, and which of them depend on which."""
        return CausalGraph(self.analysis)

    @cached_property
    def recorded(self) -> frozenset[str]:
        """The options of the recording, such as "ops", "fingerprints"; all if unknown."""
        for event in self.analysis.log.of(RecordingStarted)[:1]:
            return frozenset(_OPTIONS.get(option, option) for option in event.options)
        return frozenset({"ops", "fingerprints"})

    @cached_property
    def writers(self) -> dict[int, list[Op]]:
        """Ops that wrote a storage, oldest first, by storage id."""
        found: dict[int, list[Op]] = defaultdict(list)
        for op in self.analysis.ops:
            if op.written or op.name in RUNNING_STATISTICS:
                for storage_id in _written_storages(op):
                    found[storage_id].append(op)
        return found

    @cached_property
    def first_readers(self) -> dict[int, Op]:
        """The first op that took each storage, by storage."""
        found: dict[int, Op] = {}
        for op, keys in zip(self.analysis.ops, self.causal_graph.inputs_memory, strict=True):
            for key in keys:
                if key not in found:
                    found[key] = op
        return found

    def writes_between(self, storage_id: int | None, after: int, before: int) -> list[Op]:
        """Return the ops that wrote a storage between two events, oldest first."""
        writes = [] if storage_id is None else self.writers.get(storage_id, [])
        if not writes:
            return []
        first = bisect_right(writes, after, key=_seq)
        return writes[first : bisect_left(writes, before, lo=first, key=_seq)]

    def overwrites(
        self, kept: Tensor, after: int, before: int, unless: Op | None = None
    ) -> list[tuple[Op, bool]]:
        """Return the writes to the memory of a tensor that is kept from one event to another.

        With each, whether it surely hits the tensor: two parts of a storage need not overlap, as
        the gates of an LSTM cell. Writes after which the version was restored do not count, nor
        does the op ``unless``.
        """
        storage_id = kept.storage_id
        return [
            (op, any(_covers(written, kept) for written in op.written))
            for op in self.writes_between(storage_id, after, before)
            if op.written and not op.failed and (unless is None or op.seq != unless.seq)
            if not self._version_restored(op, storage_id, before)
        ]

    def lasting_writes(self, ops: Iterable[Op]) -> dict[int, Op]:
        """Return the buffers and updated storages that ops wrote, with the first write of each."""
        found: dict[int, Op] = {}
        for op in ops:
            written = _written_storages(op)
            for storage_id in written if op.name in _UPDATES else written & self.buffers:
                found.setdefault(storage_id, op)
        return found

    def written_twice(
        self, region: Region, recomputation: Recomputation
    ) -> dict[int, tuple[Op, Op]]:
        """Return the lasting writes of both runs of a region, by storage from outside it."""
        before, after = self.lasting_writes(region.ops), self.lasting_writes(recomputation.ops)
        return {
            storage_id: (before[storage_id], after[storage_id])
            for storage_id in before
            if storage_id in after and self.created_seq.get(storage_id, 0) < region.entered_seq
        }

    @cached_property
    def written_in_both_runs(self) -> frozenset[int]:
        """The storages for which ``written_twice`` finds writes in any region."""
        return frozenset(
            storage_id
            for region in self.analysis.regions
            for recomputation in region.recomputations[:1]
            for storage_id in self.written_twice(region, recomputation)
        )

    @cached_property
    def region_stacks(self) -> dict[int, int | None]:
        """The stack that called the forward of each region, by region."""
        entered = self.analysis.log.of(RegionEntered)
        return {event.region_id: event.stack_id for event in reversed(entered)}

    @cached_property
    def recompute_stacks(self) -> dict[int, int | None]:
        """The stack that started each recomputation, by recomputation."""
        started = self.analysis.log.of(RecomputeStarted)
        return {event.recompute_id: event.stack_id for event in reversed(started)}

    @cached_property
    def drawing_ops(self) -> frozenset[int]:
        """Event numbers of the ops that drew from a random generator of PyTorch."""
        drawn = self.analysis.log.of(RandomDrawn)
        return frozenset(event.op_seq for event in drawn if event.op_seq is not None)

    @cached_property
    def failed_unpack(self) -> tuple[SavedTensor, Unpack] | None:
        """The first unpack that raised, the innermost of nested ones, with its saved tensor."""
        failed = [
            (saved, unpack)
            for saved in self.analysis.saved.values()
            for unpack in saved.unpacks
            if unpack.failed
        ]
        return min(failed, key=lambda pair: pair[1].seq, default=None)

    @cached_property
    def created_seq(self) -> dict[int, int]:
        """The sequence number of the op that created each storage."""
        return {storage_id: op.seq for storage_id, op in self.analysis.creators.items()}

    @cached_property
    def node_making_ops(self) -> dict[int, list[tuple[int, int]]]:
        """Autograd's and our sequence numbers of the ops that made a node, sorted, by thread."""
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for op in self.analysis.ops:
            if op.sequence_nr is not None and op.phase != "backward":
                found[op.thread].append((op.sequence_nr, op.seq))
        return {thread: sorted(pairs) for thread, pairs in found.items()}

    @cached_property
    def edges_from(self) -> defaultdict[int, list[Edge]]:
        """The edges along which each node passes gradients, by node."""
        found: defaultdict[int, list[Edge]] = defaultdict(list)
        for edge in self.analysis.graph.edges:
            found[edge.source].append(edge)
        return found

    @cached_property
    def edges_to(self) -> defaultdict[int, list[Edge]]:
        """The edges along which each node receives gradients, by node."""
        found: defaultdict[int, list[Edge]] = defaultdict(list)
        for edge in self.analysis.graph.edges:
            found[edge.target].append(edge)
        return found

    def created_in(self, storage_id: int | None, region: Region) -> bool:
        """Return whether the forward of a region created a storage."""
        seq = self.created_seq.get(storage_id) if storage_id is not None else None
        end = region.exited_seq
        return seq is not None and seq > region.entered_seq and (end is None or seq < end)

    @cached_property
    def failed_region(self) -> Region | None:
        """The region of the saved tensor whose unpack raised."""
        if self.failed_unpack is None:
            return None
        wanted = self.failed_unpack[0].region_id
        return next((r for r in self.analysis.regions if r.region_id == wanted), None)

    def written_after(self, region: Region, until: int) -> tuple[Op, Op] | None:
        """Return the first write to a tensor that a region reads from outside, and its reader.

        Only writes between the end of the region's forward and the event ``until`` count. Writes
        after which the version counter was restored do not count, nor do copies of what the tensor
        contains already, nor writes to a tensor that the region overwrites before it reads it,
        such as a staging buffer.
        """
        if region.exited_seq is None:
            return None
        overwritten: set[int | None] = set()
        for read in region.ops:
            for tensor in () if is_view(read) else read.inputs:
                storage_id = tensor.storage_id
                if storage_id in overwritten or self.created_in(storage_id, region):
                    continue
                if storage_id is None or storage_id in fully_written(read):
                    continue
                for write, _ in self.overwrites(tensor, region.exited_seq, until):
                    if not self._repeats_copy(write, storage_id):
                        return write, read
            overwritten |= fully_written(read)
        return None

    def _repeats_copy(self, write: Op, storage_id: int) -> bool:
        """Return whether the last write to a storage was the same copy of the same values."""
        before = next(reversed(self.writes_between(storage_id, -1, write.seq)), None)
        if before is None or write.name != "copy_" or before.name != "copy_":
            return False
        if storage_id not in fully_written(write) & fully_written(before):
            return False
        source = write.inputs[1]
        return (
            source == before.inputs[1]
            and write.input_versions[1] == before.input_versions[1]
            and not any(self.writes_between(source.storage_id, before.seq, write.seq))
        )

    def _version_restored(self, write: Op, storage_id: int | None, until: int) -> bool:
        """Return whether a version counter was restored after a write."""
        restored = self._restored.get(storage_id, ()) if storage_id is not None else ()
        return any(write.seq < seq < until for seq in restored)

    @cached_property
    def _restored(self) -> defaultdict[int, list[int]]:
        """The events that restored a version counter, by storage."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for event in self.analysis.log.of(VersionRestored):
            if event.storage_id is not None:
                found[event.storage_id].append(event.seq)
        return found

    def name_of(self, storage_id: int) -> str:
        """Return the first parameter or buffer name of a storage, "" if it has none."""
        owners = self._owners.get(storage_id)
        return self.analysis.leaf_name(owners[0]) if owners else ""

    def named_memory(self, tensor: Tensor) -> str:
        """Return the parameter or buffer that a tensor is or a view of, "" if that is not certain.

        A storage that contains several parameters names none of them.
        """
        if names := self.analysis.parameters.get(tensor.tensor_id):
            return names[0]
        owners = self._owners.get(tensor.storage_id, ()) if tensor.storage_id is not None else ()
        return self.analysis.leaf_name(owners[0]) if len(owners) == 1 else ""

    @cached_property
    def _owners(self) -> defaultdict[int, list[int]]:
        """The parameters and buffers in each storage."""
        owners: defaultdict[int, list[int]] = defaultdict(list)
        for tensor_id in self.analysis.parameters:
            storage_id = self.analysis.tensors[tensor_id].storage_id
            if storage_id is not None:
                owners[storage_id].append(tensor_id)
        return owners

    def shared_name(self, write: Op, read: Op) -> str:
        """Return the name of a parameter or buffer that one op writes and another reads, or ""."""
        written = _written_storages(write)
        for tensor in read.inputs:
            if tensor.storage_id in written:
                return self.name_of(tensor.storage_id)
        return ""

    @cached_property
    def buffers(self) -> frozenset[int]:
        """The storages of registered buffers."""
        storages = (
            self.analysis.tensors[event.tensor_id].storage_id
            for event in self.analysis.log.of(ParameterSeen)
            if event.buffer
        )
        return frozenset(storage_id for storage_id in storages if storage_id is not None)

    def backward(self, backward_id: int | None) -> BackwardStarted | None:
        """Return the start of a backward."""
        return None if backward_id is None else self.causal_graph.backwards.get(backward_id)

    def backward_line(self, backward_id: int | None) -> SourceLocation | None:
        """Return the line that called a backward."""
        event = self.backward(backward_id)
        return self.analysis.location(event.stack_id) if event is not None else None

    def first_backward(self, node: Node) -> SourceLocation | None:
        """Return the line of the first backward in which a node finished."""
        for event in self.analysis.log.of(NodeFinished):
            if event.node_id == node.node_id and self.backward(event.backward_id) is not None:
                return self.backward_line(event.backward_id)
        return None

    @cached_property
    def user_files(self) -> tuple[str, ...]:
        """The user's files that appear in stacks, in order, and those that they import."""
        frames = self.analysis.log.of(FrameSeen)
        return with_imported(f.filename for f in frames if not f.library)

    def in_optimizer(self, op: Op) -> bool:
        """Return whether an op was called by an optimizer."""
        return self.analysis.in_optimizer(op.stack_id)

    def error_stack(self) -> tuple[SourceLocation, ...]:
        """Return the traceback of the exception that left the block, innermost line first."""
        raised = self.analysis.log.of(ErrorRaised)
        return self.analysis.stack(raised[-1].stack_id) if raised else ()

    def raised_at(self) -> SourceLocation | None:
        """Return the innermost line of the user's own code in the error's traceback."""
        return self.analysis.error.location if self.analysis.error is not None else None


def _covers(written: Tensor, kept: Tensor) -> bool:
    """Return whether a write to one view certainly writes another view of the same storage."""
    if written.storage_id != kept.storage_id:
        return False
    whole = written.storage_nbytes in {written.nbytes, kept.nbytes}
    return whole or written.tensor_id == kept.tensor_id


def fully_written(op: Op) -> set[int | None]:
    """Return the storages that an op overwrote completely, without reading them."""
    if op.name not in _FILLS:
        return set()
    return {tensor.storage_id for tensor in op.written if tensor.nbytes == tensor.storage_nbytes}


def uses_running_statistics(op: Op) -> bool:
    """Return whether a batch norm used its running statistics instead of the batch's."""
    batch_statistics = op.outputs[1:] if op.name in RUNNING_STATISTICS else ()
    return bool(batch_statistics) and all(tensor.nbytes == 0 for tensor in batch_statistics)


def _written_storages(op: Op) -> set[int]:
    found = {tensor.storage_id for tensor in op.written}
    if op.name in RUNNING_STATISTICS and not uses_running_statistics(op):
        undeclared = RUNNING_STATISTICS[op.name]
        found.update(op.inputs[i].storage_id for i in undeclared if i < len(op.inputs))
    return {storage_id for storage_id in found if storage_id is not None}
