"""Times, copies and streams of accelerators."""

from __future__ import annotations

from dataclasses import dataclass

from autogradviz.events.base import Event
from autogradviz.events.field_types import BackwardId, CallId, NodeId, OpSeq, event


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
