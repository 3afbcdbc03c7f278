"""The bytes of the storages that saved tensors hold, and how long they hold them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeAlias

from autogradviz.events import BackwardEnded, BackwardStarted, NodeStarted, TensorUnpacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

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


def sum_bytes(
    changes: Iterable[Change], storages: Mapping[int, tuple[object, int]]
) -> Iterator[tuple[Change, int, bool]]:
    """Yield the changes that begin or end the hold of a storage.

    With each, the sum of bytes after it, and whether it begins one.

    Args:
        changes: in any order.
        storages: storage and its bytes, by saved tensor.
    """
    holders: dict[object, int] = defaultdict(int)
    nbytes = 0
    for each in sorted(changes):
        storage_id, size = storages[each[3]]
        before = holders[storage_id]
        holders[storage_id] = before + each[1]
        if before == 0 or before + each[1] == 0:
            nbytes += each[1] * size
            yield each, nbytes, before == 0
