"""The bytes of the storages that saved tensors hold, and how long they hold them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeAlias

from autogradviz.events import (
    BackwardEnded,
    BackwardStarted,
    NodeStarted,
    OpCalled,
    RecordingStarted,
    RegionRan,
    StorageResized,
    TensorUnpacked,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from autogradviz.event_log.log import Log

Change: TypeAlias = tuple[int, int, int, int]
"""Event, +1 if a saved tensor is held from then on, else -1, time, saved id."""


def read_unpacks(log: Log) -> dict[int, list[tuple[Any, ...]]]:
    """Return the unpacks of each saved tensor, with the backward that ran on the thread.

    Returns:
        Event, backward, version, version seen, failed, hash, hash seen, as in ``Unpack``.
    """
    unpacks: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    running: dict[int, int | None] = {}  # thread -> backward
    parents = dict(log.fields(BackwardStarted, "backward_id", "parent_backward_id"))
    for kind, thread, backward_id, saved_id, seq, *seen in log.merged_fields(
        (BackwardStarted, NodeStarted, TensorUnpacked, BackwardEnded),
        "thread", "backward_id", "saved_id", "seq",
        "version", "seen_version", "failed", "saved_hash", "seen_hash",
    ):  # fmt: skip
        if kind is TensorUnpacked:
            unpacks[saved_id].append((seq, running.get(thread), *seen))
        elif kind is BackwardEnded:
            running[thread] = parents.get(backward_id)
        else:
            running[thread] = backward_id
    return unpacks


def times_of_compiled_saves(log: Log) -> dict[int | None, tuple[int, int]]:
    """Return event and time from which the nodes of compiled regions hold what they saved.

    Their slots are read one after the other, long after the run of the region has filled them. A
    region that ran before the first recorded op held them when the recording began.
    """
    fields = ("node_id", "seq", "time_ns", "early", "thread", "sequence_nr")
    runs = list(log.fields(RegionRan, *fields))
    first: dict[int, int] = {}  # by thread
    if any(early for _, _, _, early, _, _ in runs):
        for thread, number in log.fields(OpCalled, "thread", "sequence_nr"):
            if number is not None:
                first.setdefault(thread, number)
    began = next(iter(log.fields(RecordingStarted, "seq", "time_ns")), None)
    found: dict[int | None, tuple[int, int]] = {}
    for node_id, seq, time_ns, early, thread, number in runs:
        is_older = early and number is not None and number < first.get(thread, -1)
        found[node_id] = began if is_older and began is not None else (seq, time_ns)
    return found


def release_of_recomputed(
    saved_seq: int,
    released_seq: int | None,
    unpacks: Iterable[tuple[int, int | None]],
    ended: Mapping[int, int],
) -> int | None:
    """Return when a tensor that a recomputation saved was released.

    Checkpoint drops it at its first unpack; from then on, only the node that runs holds it. A
    node that stays, because the graph was retained, keeps nothing of it.

    Args:
        saved_seq: when it was saved.
        released_seq: when the tensor that the forward saved at its position was released.
        unpacks: of that one; the event and the backward of each.
        ended: when each backward ended.
    """
    used, backward_id = next((each for each in unpacks if each[0] > saved_seq), (None, None))
    if released_seq is None or released_seq <= saved_seq:
        return used
    if used is None or backward_id is None:
        return released_seq
    return used if released_seq > ended.get(backward_id, released_seq) else released_seq


def read_resizes(log: Log) -> list[tuple[int, int, int, int]]:
    """Return event, time, storage and bytes from then on, for each storage that was resized."""
    return list(log.fields(StorageResized, "seq", "time_ns", "storage_id", "storage_nbytes"))


def alive_at_peak(spans: Sequence[tuple[int, int | None, int]]) -> list[int]:
    """Return the places of the spans that are alive when the sum of their bytes is last highest.

    Of equal peaks, a first step may contain warm-up. What ends at a moment is not alive at it.

    Args:
        spans: begin, end and bytes; None for a span that does not end.
    """
    changes = [(begin, nbytes) for begin, _, nbytes in spans]
    changes += [(end, -nbytes) for _, end, nbytes in spans if end is not None]
    total, highest, peak = 0, -1, -1
    for moment, change in sorted(changes):
        total += change
        if total >= highest:
            highest, peak = total, moment
    return [
        place
        for place, (begin, end, _) in enumerate(spans)
        if begin <= peak and (end is None or end > peak)
    ]


def sum_bytes(
    changes: Iterable[Change],
    storages: Mapping[int, tuple[object, int]],
    resizes: Sequence[tuple[int, int, object, int]] = (),
) -> Iterator[tuple[Change, int, int, bool]]:
    """Yield the changes that begin or end the hold of a storage.

    With each, the bytes of the storage, the sum of bytes after it, and whether it begins one. A
    resize of a storage that is held ends a hold, unless it had no memory, and begins another one,
    unless it has none then.

    Args:
        changes: in any order.
        storages: storage and its bytes, by saved tensor.
        resizes: event, time, storage and its bytes from then on.
    """
    holders: dict[object, int] = defaultdict(int)
    first: dict[object, int] = {}  # the saved tensor that began to hold a storage
    sizes: dict[object, int] = {}  # of storages that were resized
    held: dict[object, int] = {}
    total = 0
    moments = [(seq, 0, time_ns, number) for number, (seq, time_ns, *_) in enumerate(resizes)]
    resized = [each[2:] for each in resizes]
    for seq, change, time_ns, which in sorted((*changes, *moments)):
        if change:
            storage_id, size = storages[which]
            # A save that is released by its own event counts, with a hold of no length.
            begins = holders[storage_id] == 0
            holders[storage_id] += change
            ends = not begins and holders[storage_id] == 0
            size = sizes.get(storage_id, size)
            if begins:
                first[storage_id] = which
        else:
            storage_id, size = resized[which]
            begins = ends = holders[storage_id] > 0 and held.get(storage_id, 0) != size
            sizes[storage_id] = size
        if ends and storage_id in held:
            size_before = held.pop(storage_id)
            total -= size_before
            last = which if change else first[storage_id]
            yield (seq, -1, time_ns, last), size_before, total, False
        if begins and (size or storage_id not in sizes):
            held[storage_id] = size
            total += size
            yield (seq, +1, time_ns, first[storage_id]), size, total, True
