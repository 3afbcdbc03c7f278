"""The histories of saved tensors: saves, writes, clones, unpacks and releases, in order."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from autogradviz.analysis.types import HistoryEntry, Op, SavedTensor, TensorHistory
from autogradviz.event_log.rows_as_named_tuples import rows_of
from autogradviz.events import (
    MutationCloned,
    NodeSeen,
    TensorReleased,
    TensorUnpacked,
    VersionBumped,
    VersionRestored,
)
from autogradviz.support.fast_dataclass_constructor import maker
from autogradviz.support.op_names import short_op_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.analysis.tensor_and_module_tables import Tensors
    from autogradviz.analysis.types import Tensor
    from autogradviz.event_log import Log
    from autogradviz.event_log.stacks import Stacks
from autogradviz.analysis.saved_tensors import find_stored_ids

# --- histories of saved storages: saves, writes, unpacks, clones and releases in order ------------


_make_history = maker(TensorHistory)
_make_entry = maker(HistoryEntry)

_RANKS = {"written": 0, "saved": 1, "unpacked": 2, "cloned": 3, "released": 4}

_Entries: TypeAlias = "Iterator[tuple[int | None, HistoryEntry]]"  # storage id and entry


def restored_storages(log: Log) -> set[int | None]:
    """Return the ids of the storages whose version was set back after a write."""
    return {event.storage_id for event in log.of(VersionRestored)}


def build_histories(
    log: Log,
    tensors: Tensors,
    stacks: Stacks,
    op_by_seq: dict[int, Op],
    saved: dict[int, SavedTensor],
) -> tuple[TensorHistory, ...]:
    """Return the history of each storage that was saved or cloned, in order of storage id."""
    entries: dict[int, list[HistoryEntry]] = {id_: [] for id_ in find_stored_ids(log, saved)}
    for storage_id, entry in chain(
        _saves(saved),
        _clones(log, tensors, stacks, op_by_seq),
        _writes(log, stacks, op_by_seq),
        _unversioned_writes(log, op_by_seq),
        _unpacks(log, stacks, saved),
        _releases(log, saved),
    ):
        if storage_id in entries:
            entries[storage_id].append(entry)
    views: dict[int, list[Tensor]] = defaultdict(list)
    for tensor in tensors.values():
        if tensor.storage_id in entries:
            views[tensor.storage_id].append(tensor)
    return tuple(
        _make_history(
            storage_id=storage_id,
            nbytes=max((tensor.storage_nbytes for tensor in views[storage_id]), default=0),
            tensors=tuple(views[storage_id]),
            entries=tuple(sorted(entries[storage_id], key=_age)),
        )
        for storage_id in sorted(entries)
    )


def _age(entry: HistoryEntry) -> tuple[int, int, int]:
    # One op may write and save. exp_ saves version 1, which it made itself: the write is older.
    # An op that saves version 0 and then writes version 1 did it in the opposite order.
    version = -1 if entry.version is None else entry.version
    return entry.seq, version, _RANKS[entry.kind]


def _saves(saved: dict[int, SavedTensor]) -> _Entries:
    for tensor in saved.values():
        yield (
            tensor.tensor.storage_id,
            _make_entry(
                seq=tensor.saved_seq,
                time_ns=tensor.saved_ns or 0,
                kind="saved",
                version=tensor.version,
                op="" if tensor.op is None else tensor.op.name,
                saved_id=tensor.saved_id,
                location=tensor.location,
            ),
        )


def _writes(log: Log, stacks: Stacks, op_by_seq: dict[int, Op]) -> _Entries:
    for event in rows_of(log, VersionBumped):
        op = None if event.op_seq is None else op_by_seq.get(event.op_seq)
        yield (
            event.storage_id,
            _make_entry(
                seq=event.seq if op is None else op.seq,
                time_ns=event.time_ns if op is None else op.time_ns,
                kind="written",
                version=event.seen_version,
                op=short_op_name(event.op),
                location=stacks.location(event.stack_id) if op is None else op.location,
            ),
        )


def _unversioned_writes(log: Log, op_by_seq: dict[int, Op]) -> _Entries:
    """Yield the writes of ops that increment no version counter, such as fused optimizers."""
    bumped = set(log.fields(VersionBumped, "op_seq", "tensor_id"))
    for op in op_by_seq.values():
        for tensor in op.written:
            if (op.seq, tensor.tensor_id) not in bumped:
                yield (
                    tensor.storage_id,
                    _make_entry(
                        seq=op.seq,
                        time_ns=op.time_ns,
                        kind="written",
                        op=op.name,
                        location=op.location,
                    ),
                )


def _clones(log: Log, tensors: Tensors, stacks: Stacks, op_by_seq: dict[int, Op]) -> _Entries:
    for event in log.of(MutationCloned):
        op = None if event.op_seq is None else op_by_seq.get(event.op_seq)
        location = stacks.location(event.stack_id)
        if location is None and op is not None:
            location = op.location
        yield (
            event.storage_id,
            _make_entry(
                seq=event.seq,
                time_ns=event.time_ns,
                kind="cloned",
                op="clone",
                location=location,
                nbytes=tensors[event.clone_id].nbytes,
            ),
        )


def _unpacks(log: Log, stacks: Stacks, saved: dict[int, SavedTensor]) -> _Entries:
    names = dict(log.fields(NodeSeen, "node_id", "node_name"))
    for event in rows_of(log, TensorUnpacked):
        tensor = saved.get(event.saved_id)
        if tensor is None:
            continue
        known = event.version is not None and event.seen_version is not None and not tensor.cloned
        node_id = tensor.node_id if event.node_id is None else event.node_id
        yield (
            tensor.tensor.storage_id,
            _make_entry(
                seq=event.seq,
                time_ns=event.time_ns,
                kind="unpacked",
                version=event.seen_version,
                op="" if node_id is None else names.get(node_id, ""),
                saved_id=event.saved_id,
                ok=not event.failed and not (known and event.version != event.seen_version),
                location=stacks.location(event.stack_id),
            ),
        )


def _releases(log: Log, saved: dict[int, SavedTensor]) -> _Entries:
    for seq, time_ns, saved_id in log.fields(TensorReleased, "seq", "time_ns", "saved_id"):
        if saved_id in saved:
            yield (
                saved[saved_id].tensor.storage_id,
                _make_entry(seq=seq, time_ns=time_ns, kind="released", saved_id=saved_id),
            )


# --- held saved tensors whose memory was written since they were saved ----------------------------


def find_stale(log: Log, saved_tensors: Iterable[SavedTensor]) -> dict[int, VersionBumped]:
    """Return the last write to each held saved tensor that was written since.

    PyTorch refuses to unpack such a tensor, unless the write went through an alias with a version
    counter of its own; then the gradient is wrong. Tensors that saved-tensor hooks packed are left
    out.
    """
    last: dict[int | None, VersionBumped] = {
        event.storage_id: event for event in log.of(VersionBumped)
    }
    for restored in log.of(VersionRestored):
        written = last.get(restored.storage_id)
        if written is not None and restored.seq > written.seq:
            del last[restored.storage_id]
    last.pop(None, None)
    stale = {}
    for saved in saved_tensors:
        write = last.get(saved.tensor.storage_id)
        if write is None or saved.released_seq is not None or saved.packed_by != "pytorch":
            continue
        if saved.cloned or saved.version is None or write.seq < saved.saved_seq:
            continue
        if write.seen_version > saved.version:
            stale[saved.saved_id] = write
    return stale
