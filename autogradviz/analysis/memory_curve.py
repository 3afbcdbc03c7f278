"""Memory curve: bytes of storage kept alive for backward, over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.analysis.types import Hold, MemoryCurve, SavedTensor
from autogradviz.events import (
    NO_ID,
    ParameterSeen,
    StorageResized,
    TensorReleased,
    TensorSaved,
    TensorUnpacked,
)
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from autogradviz.analysis.tensor_and_module_tables import Tensors
    from autogradviz.event_log import Log

_make_hold = maker(Hold)


def build_memory(log: Log, tensors: Tensors, saved: dict[int, SavedTensor]) -> MemoryCurve:
    """Return the bytes of all storages that saved tensors hold, each storage counted once.

    Checkpoint keeps only the arguments of a region, and hooks that copy keep nothing in place.
    Parameters and buffers are not counted: they are alive anyway. A storage whose memory the
    program frees and allocates again counts while it has memory.

    Args:
        log: has the events.
        tensors: all of the log.
        saved: the saved tensors by id, all or some.
    """
    owned = {tensors[event.tensor_id].storage_id for event in log.of(ParameterSeen)}
    times: dict[int, int] = {}
    for kind in (TensorReleased, TensorUnpacked):
        times.update(log.fields(kind, "seq", "time_ns"))
    changes: list[tuple[int, int, int, int]] = []  # seq, +1 or -1, time, saved id
    for saved_id, saved_ns in log.fields(TensorSaved, "saved_id", "time_ns"):
        tensor = saved.get(saved_id)
        if tensor is None:
            continue
        if not tensor.is_held_in_place or tensor.tensor.storage_id in owned:
            continue
        op, released_seq = tensor.op, tensor.released_seq
        time_ns = saved_ns if op is None else op.time_ns
        changes.append((tensor.saved_seq, +1, time_ns, tensor.saved_id))
        if released_seq is not None:
            released_ns = times.get(released_seq, time_ns)
            changes.append((released_seq, -1, released_ns, tensor.saved_id))
    resized: dict[int, tuple[int, int]] = {}
    for seq, time_ns, storage_id, nbytes in log.fields(
        StorageResized, "seq", "time_ns", "storage_id", "storage_nbytes"
    ):
        resized[seq] = storage_id, nbytes
        changes.append((seq, 0, time_ns, NO_ID))
    return _Sum(saved, resized).curve(sorted(changes))


class _Sum:
    """The storages that are held, and their bytes, after each event."""

    def __init__(self, saved: dict[int, SavedTensor], resized: dict[int, tuple[int, int]]) -> None:
        self._saved = saved
        self._resized = resized  # seq -> storage, its bytes from then on
        self._resized_ids = {storage_id for storage_id, _ in resized.values()}
        self._sizes: dict[int | None, int] = {}
        self._keepers: dict[int | None, tuple[int, int]] = {}  # the first save, and how many
        self._started: dict[int | None, tuple[int, int, int, int]] = {}
        self._holds: list[Hold] = []
        self._nbytes = 0

    def curve(self, changes: list[tuple[int, int, int, int]]) -> MemoryCurve:
        """Return the curve, with one point for each event that changes the sum."""
        points: dict[int, tuple[int, int]] = {}  # seq -> time, bytes
        for seq, change, time_ns, saved_id in changes:
            if change:
                changed = self._held(change, saved_id, seq, time_ns)
            else:
                changed = self._resize(*self._resized[seq], seq, time_ns)
            if changed:
                points[seq] = (time_ns, self._nbytes)
        for storage_id in list(self._started):
            self._end(storage_id, None, None)
        self._holds.sort(key=lambda hold: (hold.start_ns, hold.saved_id))
        return MemoryCurve(
            seqs=tuple(points),
            times_ns=tuple(time_ns for time_ns, _ in points.values()),
            nbytes=tuple(total for _, total in points.values()),
            holds=tuple(self._holds),
        )

    def _held(self, change: int, saved_id: int, seq: int, time_ns: int) -> bool:
        """A saved tensor begins or ceases to hold its storage; return whether the sum changes."""
        tensor = self._saved[saved_id].tensor
        storage_id = tensor.storage_id
        keeper, before = self._keepers.get(storage_id, (saved_id, 0))
        if before + change == 0:
            self._keepers.pop(storage_id, None)
            return self._end(storage_id, seq, time_ns)
        self._keepers[storage_id] = keeper, before + change
        if before:
            return False
        nbytes = self._sizes.setdefault(storage_id, tensor.storage_nbytes)
        return self._start(storage_id, nbytes, saved_id, seq, time_ns)

    def _resize(self, storage_id: int, nbytes: int, seq: int, time_ns: int) -> bool:
        """A storage gets another size; return whether the sum changes."""
        before = self._sizes.get(storage_id)
        self._sizes[storage_id] = nbytes
        if storage_id not in self._keepers or nbytes == before:
            return False
        ended = self._end(storage_id, seq, time_ns)
        saved_id, _ = self._keepers[storage_id]
        return self._start(storage_id, nbytes, saved_id, seq, time_ns) or ended

    def _start(
        self, storage_id: int | None, nbytes: int, saved_id: int, seq: int, time_ns: int
    ) -> bool:
        if nbytes == 0 and storage_id in self._resized_ids:
            return False
        self._started[storage_id] = saved_id, nbytes, seq, time_ns
        self._nbytes += nbytes
        return True

    def _end(self, storage_id: int | None, seq: int | None, time_ns: int | None) -> bool:
        started = self._started.pop(storage_id, None)
        if started is None:
            return False
        saved_id, nbytes, start_seq, start_ns = started
        assert storage_id is not None
        self._nbytes -= nbytes
        self._holds.append(
            _make_hold(
                storage_id=storage_id,
                nbytes=nbytes,
                saved_id=saved_id,
                start_seq=start_seq,
                start_ns=start_ns,
                end_seq=seq,
                end_ns=time_ns,
            )
        )
        return True
