"""Memory curve: bytes of storage kept alive for backward, over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.analysis.types import Hold, MemoryCurve, SavedTensor
from autogradviz.event_log.saved_bytes import Change, read_resizes, sum_bytes
from autogradviz.events import ParameterSeen, TensorReleased, TensorSaved, TensorUnpacked
from autogradviz.support.objects import maker

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
    changes: list[Change] = []
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
    points: dict[int, tuple[int, int]] = {}  # seq -> time, bytes
    started: dict[int | None, tuple[int, int, int]] = {}  # storage -> saved tensor, seq, time
    sizes: dict[int | None, int] = {}
    holds: list[Hold] = []
    held = ((saved_id, each.tensor) for saved_id, each in saved.items())
    storages = {each: (tensor.storage_id, tensor.storage_nbytes) for each, tensor in held}
    for change, size, total, begins in sum_bytes(changes, storages, read_resizes(log)):
        seq, _, time_ns, saved_id = change
        points[seq] = (time_ns, total)
        storage_id = storages[saved_id][0]
        if begins:
            started[storage_id] = (saved_id, seq, time_ns)
            sizes[storage_id] = size
        else:
            holds.append(_hold(storage_id, size, *started.pop(storage_id), seq, time_ns))
    holds += [_hold(key, sizes[key], *start, None, None) for key, start in started.items()]
    holds.sort(key=lambda hold: (hold.start_ns, hold.saved_id))
    return MemoryCurve(
        seqs=tuple(points),
        times_ns=tuple(time_ns for time_ns, _ in points.values()),
        nbytes=tuple(total for _, total in points.values()),
        holds=tuple(holds),
    )


def _hold(
    storage_id: int | None,
    nbytes: int,
    saved_id: int,
    start_seq: int,
    start_ns: int,
    end_seq: int | None,
    end_ns: int | None,
) -> Hold:
    assert storage_id is not None
    return _make_hold(
        storage_id=storage_id,
        nbytes=nbytes,
        saved_id=saved_id,
        start_seq=start_seq,
        start_ns=start_ns,
        end_seq=end_seq,
        end_ns=end_ns,
    )
