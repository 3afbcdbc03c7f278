"""Times, copies and streams of accelerators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from autogradviz.events.base import Event
from autogradviz.events.field_types import (
    BackwardId,
    CallId,
    EventSeq,
    NodeId,
    OpSeq,
    event,
)

StreamAction: TypeAlias = Literal["record", "wait", "wait_stream", "synchronize"]
"""An order of streams that the program requested:

- ``record``: an event was recorded on a stream.
- ``wait``: a stream waits for an event.
- ``wait_stream``: a stream waits for another one.
- ``synchronize``: the host has waited for a stream, an event, or, without both, for a device.
"""


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTimeRead(Event):
    """The times were read at which a stream began and ended a module call, or the run of a node.

    With ``record(device_time=True)`` only. They are read when the device has passed the end, or
    when the recording ends. The work of a call is on the stream that is current when it begins.
    """

    device: str  # "cuda:0"
    stream: int  # its id, 0 for the default stream
    call_id: CallId | None  # the module call
    backward_id: BackwardId | None  # the backward that ran the node
    node_id: NodeId | None
    device_start_ns: int  # since the first such time of the device
    device_end_ns: int
    submitted_start_ns: int  # when the program came to the start, in the time of events
    submitted_end_ns: int
    clock_start_ns: int  # the same on a clock that the recorder does not stop
    clock_end_ns: int


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCopied(Event):
    """An op copied a tensor from one device to another, or a number to the host.

    ``stack_id`` is that of the op.
    """

    op_seq: OpSeq | None
    source_device: str  # "cpu", "cuda:0"
    target_device: str
    nbytes: int  # of the copy; of a number, those of its dtype
    is_pinned: bool | None  # the memory of the host; None without one, or for a number
    is_blocking: bool  # the host waits for the copy; False between two accelerators


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class StreamUsed(Event):
    """An op or a node ran on a stream that is not the default one of its device."""

    device: str  # "cuda:0"
    stream: int  # its id
    op_seq: OpSeq | None  # None for a node
    backward_id: BackwardId | None  # the backward that ran the node
    node_id: NodeId | None


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsOrdered(Event):
    """The program ordered the work of streams, or waited for it. What C++ orders is not seen."""

    action: StreamAction
    device: str  # "cuda:0"; of an event that the host waits for, ""
    stream: int | None  # that records, waits or is waited for by the host
    other_stream: int | None  # that a stream waits for, in "wait_stream"
    recorded_seq: EventSeq | None  # the "record" that is waited for; None if it is not known
