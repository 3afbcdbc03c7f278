"""Times and copies of devices."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autogradviz.events import DeviceCopied, DeviceTimeRead, ModuleEntered, NodeSeen, OpCalled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from autogradviz.analysis.types import Module, Op, SourceLocation, Tensor
    from autogradviz.event_log import Log


# --- times of module calls and nodes on devices, of ``record(device_time=True)`` ------------------
#
# NOTE [ Lanes of streams ] A device has a clock of its own. Nothing runs before it is submitted, so
# its times are placed beside those of the host with the smallest shift for which that holds: one
# piece of work runs at once. The shift is one of a clock that never stops. The time of events
# leaves out the recorder, so each moment of that clock is translated with the nearest ones at which
# the program submitted something, of which both times are known.


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime:
    """The time in which a stream ran a module call, or the run of a node.

    Attributes:
        device: "cuda:0".
        stream: id of the stream, 0 for the default stream.
        module: name of the module that was called, None for a node. The root is "".
        call_id: the module call, None for a node.
        node_id: the node, None for a module call.
        backward_id: the backward that ran the node.
        name: the module's name or type, or the node's name.
        start_ns: nanoseconds on the device's clock, since the first time of the device.
        end_ns: the same. The stream may have waited for the host in between.
        placed_start_ns: the start beside the times of the host, which is not exact.
        placed_end_ns: the end beside them.

    Example:
        >>> trace.device_times()  # without record(device_time=True), or without an accelerator
        []
    """

    device: str
    stream: int
    module: str | None
    call_id: int | None
    node_id: int | None
    backward_id: int | None
    name: str
    start_ns: int
    end_ns: int
    placed_start_ns: int
    placed_end_ns: int

    @property
    def duration_ns(self) -> int:
        """Nanoseconds from the start to the end."""
        return self.end_ns - self.start_ns

    @property
    def lane(self) -> str:
        """The device, and the stream unless it is the default one: "cuda:0 stream 3"."""
        return f"{self.device} stream {self.stream}" if self.stream else self.device


def build_device_times(log: Log, modules: dict[int, Module]) -> tuple[DeviceTime, ...]:
    """Return all times by device, stream and start; none of what the log does not have."""
    events = log.of(DeviceTimeRead)
    called = dict(log.fields(ModuleEntered, "call_id", "module_id"))
    nodes = dict(log.fields(NodeSeen, "node_id", "node_name"))
    clock = _ProgramClock(events)
    shifts: dict[str, int] = {}
    for event in events:
        late = max(
            event.clock_start_ns - event.device_start_ns, event.clock_end_ns - event.device_end_ns
        )
        shifts[event.device] = max(shifts.get(event.device, late), late)

    def times() -> Iterator[DeviceTime]:
        for event in events:
            module = None
            if event.call_id is not None:
                module = modules.get(called.get(event.call_id, -1))
                if module is None:
                    continue
            elif event.node_id not in nodes:
                continue
            shift = shifts[event.device]
            yield DeviceTime(
                device=event.device,
                stream=event.stream,
                module=None if module is None else module.name,
                call_id=event.call_id,
                node_id=event.node_id,
                backward_id=event.backward_id,
                name=nodes[event.node_id or 0]
                if module is None
                else module.name or module.type_name,
                start_ns=event.device_start_ns,
                end_ns=event.device_end_ns,
                placed_start_ns=clock.time_of(event.device_start_ns + shift),
                placed_end_ns=clock.time_of(event.device_end_ns + shift),
            )

    return tuple(sorted(times(), key=_order))


def _order(time: DeviceTime) -> tuple[str, int, int, int]:
    return time.device, time.stream, time.start_ns, -time.end_ns


class _ProgramClock:
    """Translates times of a clock that never stops to times of events."""

    def __init__(self, events: Iterable[DeviceTimeRead]) -> None:
        known = sorted(
            pair
            for event in events
            for pair in (
                (event.clock_start_ns, event.submitted_start_ns),
                (event.clock_end_ns, event.submitted_end_ns),
            )
        )
        self._clock = [clock for clock, _ in known]
        # Threads agree on the time only when one has waited for the other.
        self._times = list(accumulate((time for _, time in known), max))

    def time_of(self, clock_ns: int) -> int:
        """Return the time of events, between those of the nearest known moments."""
        clock, times = self._clock, self._times
        after = bisect_right(clock, clock_ns)
        if after == 0:
            return times[0] + clock_ns - clock[0]
        if after == len(clock):
            return times[-1] + clock_ns - clock[-1]
        part = (clock_ns - clock[after - 1]) / (clock[after] - clock[after - 1])
        return times[after - 1] + round(part * (times[after] - times[after - 1]))


# --- copies between the host and accelerators, and what makes the host wait for them --------------


Direction: TypeAlias = Literal["to the device", "to the host", "between devices"]
"""The direction of a copy."""

WAITING_OPS: Final = {
    "aten._ctc_loss.Tensor": "reads lengths",
    "aten._ctc_loss.default": "reads lengths",
    "aten._linalg_check_errors.default": "reads a number",
    "aten._local_scalar_dense.default": "reads a number",
    "aten._unique.default": "has a size that depends on values",
    "aten._unique2.default": "has a size that depends on values",
    "aten.allclose.default": "reads a number",
    "aten.bincount.default": "has a size that depends on values",
    "aten.equal.default": "reads a number",
    "aten.index.Tensor": "has a size that depends on values",
    "aten.linalg_lstsq.default": "has a size that depends on values",
    "aten.masked_select.default": "has a size that depends on values",
    "aten.nonzero.default": "has a size that depends on values",
    "aten.repeat_interleave.Tensor": "has a size that depends on values",
    "aten.unique_consecutive.default": "has a size that depends on values",
    "aten.unique_dim.default": "has a size that depends on values",
    "aten.unique_dim_consecutive.default": "has a size that depends on values",
}
"""The operators that read values of a device: those with PyTorch's tags "dynamic_output_shape" and
"data_dependent_output", and the check of results of ``torch.linalg``. Indexing reads only masks.
What C++ copies below all observers is not known: ``torch.tensor(data, device="cuda")``."""

_MASKED: Final = {"aten.index.Tensor", "aten.index_put.default", "aten.index_put_.default"}
_MASKS: Final = {"bool", "uint8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """The copies of one kind that one line made.

    Attributes:
        location: the line, None if it is unknown.
        direction: "to the device", "to the host" or "between devices".
        source: the device that was read: "cpu", "cuda:0".
        target: the device that was written.
        nbytes: bytes of all copies.
        count: number of copies.
        is_pinned: whether the memory of the host was pinned; None between devices, and for numbers.
        is_blocking: whether the host waited for the copies.

    Example:
        >>> trace.transfers()  # on the CPU
        []
    """

    location: SourceLocation | None
    direction: Direction
    source: str
    target: str
    nbytes: int
    count: int
    is_pinned: bool | None
    is_blocking: bool

    def __str__(self) -> str:
        pinned = {True: "pinned", False: "not pinned", None: ""}[self.is_pinned]
        words = [
            f"{self.source} to {self.target}", f"{self.nbytes} bytes in {self.count}", pinned,
            "blocking" if self.is_blocking else "", f"at {self.location or '?'}",
        ]  # fmt: skip
        return ", ".join(word for word in words if word)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWait:
    """The host waited for a device."""

    seq: int
    device: str
    name: str  # of the op, "nonzero"
    reason: str  # "reads a number"
    duration_ns: int  # of the op on the host
    in_call: bool  # it ran in the call of a module, in a backward or in a recomputation
    stack_id: int | None
    location: SourceLocation | None


def build_transfers(
    log: Log, location: Callable[[int | None], SourceLocation | None]
) -> tuple[Transfer, ...]:
    """Return the copies by line, those with the most bytes first."""
    found: dict[tuple[SourceLocation | None, str, str, bool | None, bool], list[int]] = defaultdict(
        list
    )
    for event in log.of(DeviceCopied):
        key = (
            location(event.stack_id), event.source_device, event.target_device,
            event.is_pinned, event.is_blocking,
        )  # fmt: skip
        found[key].append(event.nbytes)
    transfers = [
        Transfer(
            location=line, direction=_direction(source, target), source=source, target=target,
            nbytes=sum(sizes), count=len(sizes), is_pinned=pinned, is_blocking=blocking,
        )
        for (line, source, target, pinned, blocking), sizes in found.items()
    ]  # fmt: skip
    return tuple(sorted(transfers, key=lambda each: -each.nbytes))


def _direction(source: str, target: str) -> Direction:
    if source.startswith("cpu"):
        return "to the device"
    return "to the host" if target.startswith("cpu") else "between devices"


def build_waits(log: Log, ops: Sequence[Op]) -> tuple[DeviceWait, ...]:
    """Return the ops that made the host wait for a device, oldest first."""
    copies = {event.op_seq: event for event in log.of(DeviceCopied) if event.is_blocking}
    called = dict(log.fields(OpCalled, "seq", "call_id"))
    return tuple(_waits(ops, copies, called))


def _waits(
    ops: Sequence[Op], copies: dict[int | None, DeviceCopied], called: dict[int, int | None]
) -> Iterator[DeviceWait]:
    for op in ops:
        copy = copies.get(op.seq)
        reason = WAITING_OPS.get(op.overload, "")
        device = _accelerator((*op.inputs, *op.outputs))
        if op.overload in _MASKED:
            reason = _reason_of_index(op)
        elif copy is not None and not reason:
            reason = f"copies {_direction(copy.source_device, copy.target_device)}"
        if not reason or device is None:
            continue
        yield DeviceWait(
            seq=op.seq,
            device=device,
            name=op.name,
            reason=reason,
            duration_ns=op.duration_ns,
            in_call=called.get(op.seq) is not None or op.phase != "forward",
            stack_id=op.stack_id,
            location=op.location,
        )


def _accelerator(tensors: Sequence[Tensor]) -> str | None:
    """Return the device of the first tensor on an accelerator, None if there is none."""
    found = (each.device for each in tensors)
    return next((each for each in found if each and each.split(":")[0] not in _HOST), None)


_HOST: Final = {"cpu", "meta"}


def _reason_of_index(op: Op) -> str:
    """Return why an op waits that takes indices: one of them is a mask, of which sizes depend."""
    masks = sum(each.dtype in _MASKS for each in op.inputs[1:])
    fills = op.name != "index" and masks == 1 and op.inputs[-1].shape == ()
    return "has a size that depends on values" if masks and not fills else ""
