"""Times that modules and nodes took on devices."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from autogradviz.events import DeviceTimeRead, ModuleEntered, NodeSeen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.analysis.types import Module
    from autogradviz.event_log import Log


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
