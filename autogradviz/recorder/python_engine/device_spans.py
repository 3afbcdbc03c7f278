"""Time on the device of module calls and node runs, recorded with events of streams.

The native engine does the same; see NOTE [ Time on the device ] in ``native/device_spans.h``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction
from autogradviz.support.locks_gc_and_stderr import new_lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.recorder.session import Session

_FAR_NS: Final = 500_000_000

# Not those that are observed while a recording is open.
_record: Final = torch.Event.record
_query: Final = torch.Event.query

_Owner: TypeAlias = "tuple[int | None, int | None, int | None]"
"""A module call; or a backward and the node that it runs."""


@dataclass(slots=True)
class _Span:
    owner: _Owner
    thread: int
    stream: torch.Stream
    start: torch.Event
    start_time_ns: int
    start_clock_ns: int
    end: torch.Event | None = None
    end_time_ns: int = 0
    end_clock_ns: int = 0


class PythonDeviceSpans:
    """The spans of one recording; ``DeviceSpans`` has the docs."""

    def __init__(self, session: Session, device_type: str) -> None:
        self._session = session
        self._local = session.threads.local
        self._type = device_type
        self._lock = new_lock()
        self._open: list[_Span] = []
        self._waiting: deque[_Span] = deque()  # in the order of their ends
        self._anchors: dict[int, tuple[torch.Event, int]] = {}  # event and time by device

    def begin(self, call_id: int, index: int) -> None:
        """Record that a module call begins on a device."""
        self._begin((call_id, None, None), index)

    def end(self, call_id: int) -> None:
        """Record that a module call ends."""
        self._end((call_id, None, None))

    def run_begins(self, backward_id: int, node_id: int, gradients: Sequence[Any]) -> None:
        """Record that a node begins, if a gradient that it gets is on a device."""
        with DisableTorchFunction():
            devices = [each.device for each in gradients if isinstance(each, torch.Tensor)]
        found = next((each.index for each in devices if each.type == self._type), None)
        if found is not None:
            self._begin((None, backward_id, node_id), found)

    def run_ends(self, backward_id: int, node_id: int) -> None:
        """Record that a node ended."""
        if self._open:
            self._end((None, backward_id, node_id))

    def _begin(self, owner: _Owner, index: int) -> None:
        stream = torch.accelerator.current_stream(index)
        if _is_capturing(stream):
            return
        event = self._record(stream)
        thread = self._local.state.number
        times = self._session.sequence.time_ns(thread), perf_counter_ns()
        with self._lock:
            self._anchors.setdefault(index, (event, 0))
            self._open.append(_Span(owner, thread, stream, event, *times))

    def _end(self, owner: _Owner) -> None:
        thread = self._local.state.number
        with self._lock:
            ended = [each for each in self._open[::-1] if each.owner == owner]
            self._open[:] = [each for each in self._open if each.owner != owner]
        for span in ended:
            if _is_capturing(span.stream):
                continue
            span.end = self._record(span.stream)
            span.end_time_ns = self._session.sequence.time_ns(thread)
            span.end_clock_ns = perf_counter_ns()
            with self._lock:
                self._waiting.append(span)

    def _record(self, stream: torch.Stream) -> torch.Event:
        event = torch.Event(self._type, enable_timing=True)
        _record(event, stream)
        return event

    def waiting(self) -> int:
        """Return the number of spans that have ended and were not read."""
        return len(self._waiting)

    def take(self, wait: bool) -> tuple[list[tuple[Any, ...]], str]:  # noqa: FBT001
        """Return the rows of the spans that the device has passed, and what failed."""
        rows: list[tuple[Any, ...]] = []
        problem = ""
        if wait:
            for index in sorted({span.stream.device_index for span in [*self._waiting]}):
                torch.accelerator.synchronize(index)
        while self._waiting:
            span = self._waiting[0]
            index = span.stream.device_index
            anchor, anchor_ns = self._anchors[index]
            assert span.end is not None
            if not wait and not (_query(anchor) and _query(span.end)):
                break
            self._waiting.popleft()
            try:
                start_ns = anchor_ns + round(anchor.elapsed_time(span.start) * 1e6)
                end_ns = anchor_ns + round(anchor.elapsed_time(span.end) * 1e6)
            except RuntimeError as error:
                problem = str(error)
                continue
            if end_ns - anchor_ns > _FAR_NS:
                self._anchors[index] = span.end, end_ns
            rows.append((
                str(span.stream.device), span.stream.stream_id, *span.owner, start_ns, end_ns,
                span.start_time_ns, span.end_time_ns, span.start_clock_ns, span.end_clock_ns,
            ))  # fmt: skip
        return rows, problem


def _is_capturing(stream: torch.Stream) -> bool:
    """Return whether a stream captures a graph: events of it have no times."""
    return stream.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
