"""The timeline for ui.perfetto.dev: ops, modules, nodes, streams and saved bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from autogradviz.errors import MissingExtraError
from autogradviz.support.escape_surrogates import escape_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Op

_SEQUENCE: Final = 1  # one writer for all packets
_PROCESS: Final = 1  # the parent of all tracks
_ROWS: Final = {
    "module": "modules",
    "forward": "forward",
    "forward op": "forward ops",
    "recompute": "recomputation",
    "recompute op": "recomputation ops",
    "backward": "backward",
    "node": "backward nodes",
    "backward op": "backward ops",
}
"""Slice kinds and their track names, in track order."""


class _Slice(NamedTuple):
    """One slice; enclosing slices sort before enclosed ones."""

    start_ns: int
    minus_end_ns: int
    name: str
    annotations: tuple[tuple[str, str], ...] = ()
    flow_out: int | None = None
    flow_in: int | None = None


def write_perfetto(analysis: Analysis, path: Path) -> None:
    """Write forward, backward and recomputation tracks for each thread.

    Flows lead from a forward op to its backward node.

    Raises:
        MissingExtraError: if the package ``perfetto`` is not installed.
    """
    try:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
        from perfetto.trace_builder.proto_builder import TraceProtoBuilder
    except ImportError as error:
        message = "Perfetto files need a package: pip install perfetto"
        raise MissingExtraError(message) from error
    writer = _Writer(TraceProtoBuilder(), TrackEvent)
    tracks = _collect(analysis)
    order = list(_ROWS)
    last = len(order)  # lanes of streams
    places = {kind: place for place, kind in enumerate(order)}
    for kind, thread in sorted(tracks, key=lambda key: (key[1], places.get(key[0], last), key[0])):
        name = _ROWS.get(kind, kind) + (f", thread {thread}" if thread else "")
        writer.add_slices(name, tracks[kind, thread])
    curve = analysis.memory
    writer.add_counter("saved for backward", zip(curve.times_ns, curve.nbytes, strict=True))
    path.write_bytes(writer.builder.serialize())


def _collect(analysis: Analysis) -> dict[tuple[str, int], list[_Slice]]:
    """Return the slices by kind and thread, or by the lane of a stream."""
    tracks: dict[tuple[str, int], list[_Slice]] = {}
    made: dict[int | None, int] = {
        op.node_id: op.seq for op in analysis.ops if op.node_id is not None
    }
    for span in analysis.timeline.spans:
        if span.kind == "device":
            entry = _Slice(span.start_ns, -span.end_ns, span.label)
            tracks.setdefault((span.lane, 0), []).append(entry)
        elif span.kind in _ROWS:
            # Only the first run of a node: a flow ends once.
            flow_in = made.pop(span.ref, None) if span.kind == "node" else None
            entry = _Slice(span.start_ns, -span.end_ns, span.label or span.kind, flow_in=flow_in)
            tracks.setdefault((span.kind, span.thread), []).append(entry)
    for op in analysis.ops:
        phase = op.phase if f"{op.phase} op" in _ROWS else "forward"
        flow_out = op.seq if op.node_id is not None else None
        entry = _Slice(
            op.time_ns, -op.time_ns - op.duration_ns, op.name, _annotations(op), flow_out
        )
        tracks.setdefault((f"{phase} op", op.thread), []).append(entry)
    return tracks


def _annotations(op: Op) -> tuple[tuple[str, str], ...]:
    annotations = {
        "op": op.overload,
        "module": op.module,
        "line": str(op.location) if op.location else "",
        "outputs": ", ".join(f"{t.dtype}{list(t.shape)}" for t in op.outputs),
    }
    return tuple((key, value) for key, value in annotations.items() if value)


class _Writer:
    """Appends packets to a trace builder."""

    def __init__(self, builder: Any, event: Any) -> None:
        self.builder = builder
        self._event = event
        self._tracks = _PROCESS
        descriptor = builder.add_packet().track_descriptor
        descriptor.uuid = _PROCESS
        descriptor.process.pid = 1
        descriptor.process.process_name = "autogradviz"
        descriptor.child_ordering = descriptor.ChildTracksOrdering.EXPLICIT

    def _add_track(self, name: str) -> Any:
        self._tracks += 1
        descriptor = self.builder.add_packet().track_descriptor
        descriptor.uuid = self._tracks
        descriptor.parent_uuid = _PROCESS
        descriptor.sibling_order_rank = self._tracks
        descriptor.name = name
        return descriptor

    def _add_event(self, time_ns: int, track: int, kind: int) -> Any:
        packet = self.builder.add_packet()
        packet.timestamp = time_ns
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.track_event.type = kind
        packet.track_event.track_uuid = track
        return packet.track_event

    def add_slices(self, name: str, slices: list[_Slice]) -> None:
        """Add a track; a slice ends no later than its enclosing slice."""
        track = self._add_track(name).uuid
        open_until: list[int] = []  # end times of the open slices
        for each in sorted(slices, key=lambda each: each[:2]):
            while open_until and open_until[-1] <= each.start_ns:
                self._add_event(open_until.pop(), track, self._event.TYPE_SLICE_END)
            event = self._add_event(each.start_ns, track, self._event.TYPE_SLICE_BEGIN)
            event.name = escape_surrogates(each.name)
            for key, value in each.annotations:
                note = event.debug_annotations.add()
                note.name, note.string_value = key, escape_surrogates(value)
            if each.flow_out is not None:
                event.flow_ids.append(each.flow_out)
            if each.flow_in is not None:
                event.terminating_flow_ids.append(each.flow_in)
            end_ns = -each.minus_end_ns
            open_until.append(min(end_ns, open_until[-1]) if open_until else end_ns)
        while open_until:
            self._add_event(open_until.pop(), track, self._event.TYPE_SLICE_END)

    def add_counter(self, name: str, points: Iterable[tuple[int, int]]) -> None:
        """Add a counter track of bytes over time."""
        descriptor = self._add_track(name)
        descriptor.counter.unit = descriptor.counter.UNIT_SIZE_BYTES
        for time_ns, value in points:
            self._add_event(
                time_ns, descriptor.uuid, self._event.TYPE_COUNTER
            ).counter_value = value
