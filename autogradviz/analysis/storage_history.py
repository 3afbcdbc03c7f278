"""The lives of saved storages: saved, written, taken back, cloned, let go."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING

from autogradviz.analysis.fast_rows import rows_of
from autogradviz.analysis.match_ops_nodes import short_op_name
from autogradviz.analysis.types import HistoryEntry, SavedTensor, TensorHistory
from autogradviz.events import (
    MutationCloned,
    NodeSeen,
    TensorReleased,
    TensorSaved,
    TensorUnpacked,
    VersionBumped,
)
from autogradviz.fast_dataclass import maker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis.id_tables import Tensors
    from autogradviz.analysis.stacks import Stacks
    from autogradviz.analysis.types import Op, Tensor
    from autogradviz.event_log import Log

_make_history = maker(TensorHistory)
_make_entry = maker(HistoryEntry)

_RANKS = {"written": 0, "saved": 1, "unpacked": 2, "cloned": 3, "released": 4}


def build_histories(
    log: Log,
    tensors: Tensors,
    stacks: Stacks,
    op_by_seq: dict[int, Op],
    saved: dict[int, SavedTensor],
) -> tuple[TensorHistory, ...]:
    """Return the history of each storage that was saved or cloned, in order of storage id."""
    entries: dict[int, list[HistoryEntry]] = defaultdict(list)
    for storage_id, entry in _saves(log, saved):
        entries[storage_id].append(entry)
    for storage_id, entry in _clones(log, tensors, stacks, op_by_seq):
        entries[storage_id].append(entry)
    writes = chain(_writes(log, stacks, op_by_seq), _uncounted_writes(log, op_by_seq))
    for storage_id, entry in writes:
        if storage_id in entries:
            entries[storage_id].append(entry)
    for storage_id, entry in _unpacks(log, stacks, saved):
        entries[storage_id].append(entry)
    for storage_id, entry in _releases(log, saved):
        entries[storage_id].append(entry)
    windows: dict[int, list[Tensor]] = defaultdict(list)
    for tensor in tensors.values():
        if tensor.storage_id in entries:
            windows[tensor.storage_id].append(tensor)
    return tuple(
        _make_history(
            storage_id=storage_id,
            nbytes=max((tensor.storage_nbytes for tensor in windows[storage_id]), default=0),
            tensors=tuple(windows[storage_id]),
            entries=tuple(sorted(entries[storage_id], key=_age)),
        )
        for storage_id in sorted(entries)
    )


def find_stored(log: Log, saved: dict[int, SavedTensor]) -> frozenset[int]:
    """Return the storages that were saved or cloned: those that have a history."""
    found = {tensor.tensor.storage_id for tensor in saved.values()}
    found |= {event.storage_id for event in log.of(MutationCloned)}
    return frozenset(storage_id for storage_id in found if storage_id is not None)


def _age(entry: HistoryEntry) -> tuple[int, int, int]:
    # One op may write and save: exp_ saves version 1, which it made itself, so the write is
    # older. An op that saves version 0 and then writes version 1 did it the other way round.
    version = -1 if entry.version is None else entry.version
    return entry.seq, version, _RANKS[entry.kind]


def _saves(log: Log, saved: dict[int, SavedTensor]) -> Iterator[tuple[int, HistoryEntry]]:
    for event in rows_of(log, TensorSaved):
        tensor = saved[event.saved_id]
        if tensor.tensor.storage_id is not None:
            yield (
                tensor.tensor.storage_id,
                _make_entry(
                    seq=tensor.saved_seq,
                    time_ns=event.time_ns if tensor.op is None else tensor.op.time_ns,
                    kind="saved",
                    version=tensor.version,
                    op="" if tensor.op is None else tensor.op.name,
                    saved_id=tensor.saved_id,
                    ok=True,
                    location=tensor.location,
                ),
            )


def _writes(
    log: Log, stacks: Stacks, op_by_seq: dict[int, Op]
) -> Iterator[tuple[int, HistoryEntry]]:
    for event in rows_of(log, VersionBumped):
        if event.storage_id is None:
            continue
        op = None if event.op_seq is None else op_by_seq.get(event.op_seq)
        yield (
            event.storage_id,
            _make_entry(
                seq=event.seq if op is None else op.seq,
                time_ns=event.time_ns if op is None else op.time_ns,
                kind="written",
                version=event.seen_version,
                op=short_op_name(event.op),
                saved_id=None,
                ok=True,
                location=stacks.location(event.stack_id) if op is None else op.location,
            ),
        )


def _uncounted_writes(log: Log, op_by_seq: dict[int, Op]) -> Iterator[tuple[int, HistoryEntry]]:
    """Yield the writes of ops that move no version counter, as fused optimizers do."""
    counted = {(event.op_seq, event.tensor_id) for event in rows_of(log, VersionBumped)}
    for op in op_by_seq.values():
        for tensor in op.written:
            if tensor.storage_id is not None and (op.seq, tensor.tensor_id) not in counted:
                yield (
                    tensor.storage_id,
                    _make_entry(
                        seq=op.seq,
                        time_ns=op.time_ns,
                        kind="written",
                        version=None,
                        op=op.name,
                        saved_id=None,
                        ok=True,
                        location=op.location,
                    ),
                )


def _clones(
    log: Log, tensors: Tensors, stacks: Stacks, op_by_seq: dict[int, Op]
) -> Iterator[tuple[int, HistoryEntry]]:
    for event in log.of(MutationCloned):
        if event.storage_id is None:
            continue
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
                version=None,
                op="clone",
                saved_id=None,
                ok=True,
                location=location,
                nbytes=tensors[event.clone_id].nbytes,
            ),
        )


def _unpacks(
    log: Log, stacks: Stacks, saved: dict[int, SavedTensor]
) -> Iterator[tuple[int, HistoryEntry]]:
    names = {event.node_id: event.node_name for event in log.of(NodeSeen)}
    for event in rows_of(log, TensorUnpacked):
        tensor = saved.get(event.saved_id)
        if tensor is None or tensor.tensor.storage_id is None:
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


def _releases(log: Log, saved: dict[int, SavedTensor]) -> Iterator[tuple[int, HistoryEntry]]:
    for event in rows_of(log, TensorReleased):
        tensor = saved.get(event.saved_id)
        if tensor is None or tensor.tensor.storage_id is None:
            continue
        yield (
            tensor.tensor.storage_id,
            _make_entry(
                seq=event.seq,
                time_ns=event.time_ns,
                kind="released",
                version=None,
                op="",
                saved_id=event.saved_id,
                ok=True,
                location=None,
            ),
        )
