"""Tables of findings, timeline, memory and source lines, for the panels beside the graph."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from autogradviz.analysis.formatting import source_line
from autogradviz.analysis.memory_by_kind import has_memory, measure_memory
from autogradviz.diagnose.source.source_index import docstring_lines
from autogradviz.events import FrameSeen, MemoryHeld, NodeStarted, StoragesFreed, TensorReleased
from autogradviz.scene.schema import (
    SceneFinding,
    SceneLine,
    SceneLiveMemory,
    SceneLivePoint,
    SceneMemory,
    SceneSpan,
)
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from autogradviz.analysis import Analysis, SourceLocation
    from autogradviz.analysis.memory_by_kind import MemoryPoint
    from autogradviz.analysis.types import MemoryCurve, Span
    from autogradviz.diagnose.finding import Finding
    from autogradviz.scene.fold_leaves_and_views import FoldedGraph
    from autogradviz.scene.nodes_of_events_and_lines import NodesOfEventsAndLines
    from autogradviz.scene.schema import SceneDetach


_make_span = maker(SceneSpan)

MAX_SPANS: Final = 20_000
"""Maximum number of timeline spans. Of a larger number, the longest are kept."""

EVENT_MARKERS: Final = frozenset({"toggle", "random", "buffer"})
"""Kinds of spans without duration."""

MAX_EVENT_MARKERS: Final = 4_000
"""Maximum number of each kind. The first ones are kept."""

MAX_MEMORY_POINTS: Final = 4_000
MAX_LIVE_PARTS: Final = 600


def build_findings(
    findings: Sequence[Finding],
    analysis: Analysis,
    places: NodesOfEventsAndLines,
    detaches: Sequence[SceneDetach],
) -> tuple[SceneFinding, ...]:
    """Return the findings with indices of drawn nodes and of regions."""
    region_index = {region.region_id: i for i, region in enumerate(analysis.regions)}
    return tuple(
        SceneFinding(
            nodes=places.of_finding(finding, detaches),
            region=-1 if finding.region_id is None else region_index.get(finding.region_id, -1),
            **texts_of_finding(finding, source_line),
        )
        for finding in findings
    )


def texts_of_finding(
    finding: Finding, line_of: Callable[[SourceLocation | None], tuple[str, int, str]]
) -> dict[str, Any]:
    """Return the texts of a finding, and its two lines, by the columns of their table."""
    columns = ("slug", "title", "confidence", "explanation", "fix", "mechanism")
    found = {name: getattr(finding, name) for name in columns}
    for name in ("culprit", "victim"):
        parts = zip(("file", "line", "text"), line_of(getattr(finding, name)), strict=True)
        found.update({f"{name}_{part}": each for part, each in parts})
    return found


def build_spans(analysis: Analysis, folded: FoldedGraph) -> tuple[tuple[SceneSpan, ...], int]:
    """Return the spans of the timeline, in order of start, then the event markers by kind.

    The last value is the number of spans and markers before some were left out.
    """
    region_index = {region.region_id: i for i, region in enumerate(analysis.regions)}
    refs = {"node": folded.index_of, "device": folded.index_of, "recompute": region_index}
    spans = [span for span in analysis.timeline.spans if span.kind not in EVENT_MARKERS]
    if len(spans) > MAX_SPANS:
        # Nodes and modules are known from other tables, so their bars are left out first.
        spans.sort(key=lambda span: (_is_known_elsewhere(span), span.start_ns - span.end_ns))
        spans = sorted(spans[:MAX_SPANS], key=lambda span: (span.start_ns, span.depth))
    for kind in sorted(EVENT_MARKERS):
        spans += [s for s in analysis.timeline.spans if s.kind == kind][:MAX_EVENT_MARKERS]
    rows = tuple(
        _make_span(
            kind=span.kind,
            label=span.label,
            start_ns=span.start_ns,
            end_ns=span.end_ns,
            depth=span.depth,
            thread=span.thread,
            ref=refs.get(span.kind, {}).get(-1 if span.ref is None else span.ref, -1),
            filename=span.location.place if span.location else "",
            lineno=span.location.lineno if span.location else 0,
            lane=span.lane,
        )
        for span in spans
    )
    return rows, len(analysis.timeline.spans)


def _is_known_elsewhere(span: Span) -> bool:
    """Return whether sums do without a span: drawn nodes have their own times."""
    return span.kind in {"module", "hook", "device"} or (
        span.kind == "node" and not span.label.endswith("AccumulateGrad")
    )


def build_memory(curve: MemoryCurve) -> tuple[SceneMemory, ...]:
    """Return a memory curve. A long one is reduced to the maximum of each part."""
    size = len(curve.nbytes) // MAX_MEMORY_POINTS + 1
    points = []
    for start in range(0, len(curve.nbytes), size):
        part = range(start, min(start + size, len(curve.nbytes)))
        top = max(part, key=curve.nbytes.__getitem__)
        time_ns, nbytes, seq = curve.times_ns[top], curve.nbytes[top], curve.seqs[top]
        points.append(SceneMemory(time_ns=time_ns, nbytes=nbytes, seq=seq))
    return tuple(points)


def build_live_memory(
    analysis: Analysis,
) -> tuple[tuple[SceneLiveMemory, ...], tuple[SceneLivePoint, ...]]:
    """Return all memory by kind at its peak and over time.

    The first has the devices that have memory of no known kind, too. Both are empty if the
    recording does not have what is freed.
    """
    if not has_memory(analysis):
        return (), ()
    memory = measure_memory(analysis, as_plain=True)
    at_peak = (*memory.peak.nbytes.items(), *((device, -1) for device in memory.not_counted))
    rows = _lowest_and_highest(memory.rows, analysis)
    points = zip(rows, _times_of(analysis, [row.seq for row in rows]), strict=True)
    return (
        tuple(SceneLiveMemory(kind=kind, nbytes=nbytes) for kind, nbytes in at_peak),
        tuple(_live_point(row, time_ns) for row, time_ns in points),
    )


def _lowest_and_highest(rows: Sequence[MemoryPoint], analysis: Analysis) -> list[MemoryPoint]:
    """Return the lowest and the highest row of each part, and the highest of each step."""
    size = len(rows) // MAX_LIVE_PARTS + 1
    parts = [range(at, min(at + size, len(rows))) for at in range(0, len(rows), size)]

    def total(at: int) -> int:
        return rows[at].total

    kept = {0, *(at for part in parts for at in (min(part, key=total), max(part, key=total)))}
    first = 0
    for step in analysis.steps:
        end = bisect_left(rows, step.end_seq, key=lambda row: row.seq)
        if first < end:
            kept.add(max(range(first, end), key=total))
        first = end
    return [rows[at] for at in sorted(kept) if at < len(rows)]


def _times_of(analysis: Analysis, seqs: Sequence[int]) -> list[int]:
    """Return when events happened: those that change what is live, or the last one before."""
    known = [(op.seq, op.time_ns) for op in analysis.ops]
    for kind in (StoragesFreed, MemoryHeld, NodeStarted, TensorReleased):
        known += analysis.log.fields(kind, "seq", "time_ns")
    known.sort()
    places = [bisect_right(known, seq, key=itemgetter(0)) - 1 for seq in seqs]
    times = [known[place][1] if place >= 0 else 0 for place in places]
    return list(accumulate(times, max))


def _live_point(row: MemoryPoint, time_ns: int) -> SceneLivePoint:
    of = row.nbytes.get
    parts = {
        "parameters": of("parameters", 0),
        "optimizer_state": of("optimizer state", 0),
        "gradients": of("gradients", 0),
        "saved": of("saved", 0) + of("recomputed", 0),
    }
    # What an allocator counts less than the storages have is no memory.
    other = max(0, row.total - sum(parts.values()))
    return SceneLivePoint(time_ns=time_ns, other=other, **parts)


def build_lines(analysis: Analysis) -> tuple[SceneLine, ...]:
    """Return all recorded source lines, apart from code that a compiler generated."""
    frames = analysis.log.of(FrameSeen)
    own = {frame.filename for frame in frames if not frame.library}
    generated = {frame.filename for frame in frames if frame.library} - own
    cells = {filename: f"In [{cell}]" for filename, cell in analysis.cells.items()}
    return tuple(
        SceneLine(
            filename=cells.get(filename, filename),
            lineno=lineno,
            text=text,
            # The file may have changed since it was recorded, or be another one.
            docstring=docstring_lines(filename).get(lineno) == text,
        )
        for (filename, lineno), text in sorted(analysis.source_lines.items())
        if filename not in generated
    )
