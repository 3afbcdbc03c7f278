"""Values that one stream writes and another one reads without an order between them.

NOTE [ Order of streams ]
Each stream counts its ops, and knows how many of each other stream's are done before its next one.
It learns that where it waits for an event or a stream, and from the host, which has waited for a
device or has read a value. PyTorch's engine orders streams itself: a backward orders all of them,
which may hide a race but reports none that does not exist.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from autogradviz.events import BackwardEnded, BackwardStarted, StreamsOrdered, StreamUsed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from autogradviz.analysis.types import Op, Tensor
    from autogradviz.event_log import Log

Lane: TypeAlias = tuple[str, int]
"""A device and one of its streams, 0 for the default one."""

_Known: TypeAlias = dict[Lane, int]
"""How many ops of each lane are done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRace:
    """An op reads a value that another stream may not have written yet."""

    tensor: Tensor  # that is read
    written_by: Op
    written_on: Lane
    read_by: Op
    read_on: Lane


class _Lanes:
    """The ops that each lane and the host know to be done."""

    def __init__(self) -> None:
        self.known: defaultdict[Lane, _Known] = defaultdict(dict)
        self.host: _Known = {}
        self._recorded: dict[int, _Known] = {}  # by the event that recorded an event

    def submit(self, lanes: Sequence[Lane]) -> None:
        """Count an op of some lanes, which wait for each other."""
        for lane in lanes:
            known = self.known[lane]
            for other in lanes:
                _join(known, self.known[other])
            _join(known, self.host)
        for lane in lanes:
            self.known[lane][lane] = self.known[lane].get(lane, 0) + 1

    def host_waits(self, lanes: Iterable[Lane]) -> None:
        """The host has waited for some lanes."""
        for lane in lanes:
            _join(self.host, self.known[lane])

    def order_all(self) -> None:
        """Order all lanes."""
        self.host_waits([*self.known])

    def order(self, event: StreamsOrdered) -> None:
        """Follow an order that the program requested."""
        lane = None if event.stream is None else (event.device, event.stream)
        recorded = self._recorded.get(-1 if event.recorded_seq is None else event.recorded_seq)
        if event.action == "record" and lane is not None:
            self._recorded[event.seq] = self.known[lane].copy()
            _join(self._recorded[event.seq], self.host)
        elif event.action == "wait_stream" and lane is not None:
            for other in [each for each in self.known if each[1] == event.other_stream]:
                _join(self.known[lane], self.known[other])
        elif event.action == "wait" and lane is not None and recorded is not None:
            _join(self.known[lane], recorded)
        elif event.action == "synchronize" and lane is not None:
            self.host_waits([lane])
        elif event.action == "synchronize" and recorded is not None:
            _join(self.host, recorded)
        else:
            self.order_all()  # a device, or an event that is not known


def _join(known: _Known, other: _Known) -> None:
    for lane, count in other.items():
        if known.get(lane, 0) < count:
            known[lane] = count


def find_races(log: Log, ops: Sequence[Op], waiting: frozenset[int]) -> Iterator[StreamRace]:
    """Yield the reads without an order, oldest first, each value once.

    Args:
        log: has the streams.
        ops: all of the log.
        waiting: the ops that made the host wait.
    """
    used = {event.op_seq: (event.device, event.stream) for event in log.of(StreamUsed)}
    if not used:
        return
    lanes = _Lanes()
    written: dict[int, tuple[Op, Lane, int]] = {}  # by storage
    in_order: list[Op | StreamsOrdered | BackwardStarted | BackwardEnded] = [
        *ops, *log.of(StreamsOrdered), *log.of(BackwardStarted), *log.of(BackwardEnded),
    ]  # fmt: skip
    in_order.sort(key=lambda each: each.seq)
    for each in in_order:
        if isinstance(each, StreamsOrdered):
            lanes.order(each)
        elif isinstance(each, (BackwardStarted, BackwardEnded)):
            lanes.order_all()
        else:
            yield from _run(each, used.get(each.seq), lanes, written)
            if each.seq in waiting:
                lanes.host_waits(_lanes_of(each, used.get(each.seq)))


def _run(
    op: Op, side: Lane | None, lanes: _Lanes, written: dict[int, tuple[Op, Lane, int]]
) -> Iterator[StreamRace]:
    """Yield the races of an op, and remember what it writes."""
    inputs = {each.storage_id: each for each in op.inputs if each.storage_id is not None}
    made = {each.storage_id for each in op.outputs} | {each.storage_id for each in op.written}
    wrote = {each.storage_id for each in op.written} | (made - inputs.keys())
    on = _lanes_of(op, side)
    if not on or not wrote:
        return  # a view, or an op of the host
    lanes.submit(on)
    if op.phase != "backward":
        for storage_id, tensor in inputs.items():
            writer = written.get(storage_id)
            if writer is None or writer[1] in on:
                continue
            op_before, lane, count = writer
            if all(lanes.known[each].get(lane, 0) < count for each in on):
                del written[storage_id]  # once
                yield StreamRace(
                    tensor=tensor, written_by=op_before, written_on=lane, read_by=op, read_on=on[0]
                )
    if op.name.startswith(("empty", "new_empty")):
        return
    for made_id in wrote:
        if made_id is not None:
            written[made_id] = op, on[0], lanes.known[on[0]][on[0]]


def _lanes_of(op: Op, side: Lane | None) -> list[Lane]:
    """Return the lanes that an op runs on: one for each accelerator of its tensors."""
    devices = dict.fromkeys(each.device for each in (*op.outputs, *op.inputs) if each.device)
    found = [each for each in devices if each.split(":")[0] not in {"cpu", "meta"}]
    return [side if side is not None and side[0] == each else (each, 0) for each in found]
