"""Tables of findings, timeline, memory and source lines, for the panels beside the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import (
    source_line,
)
from autogradviz.analysis.memory_by_kind import has_memory, measure_memory
from autogradviz.events import FrameSeen
from autogradviz.scene.schema import (
    SceneFinding,
    SceneLine,
    SceneLiveMemory,
    SceneMemory,
    SceneSpan,
)
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import MemoryCurve, Region, Span
    from autogradviz.diagnose.finding import Finding
    from autogradviz.scene.fold_leaves_and_views import FoldedGraph


_make_span = maker(SceneSpan)

MAX_SPANS: Final = 20_000
"""Maximum number of timeline spans. Of a larger number, the longest are kept."""

EVENT_MARKERS: Final = frozenset({"toggle", "random", "buffer"})
"""Kinds of spans without duration."""

MAX_EVENT_MARKERS: Final = 4_000
"""Maximum number of each kind. The first ones are kept."""

MAX_MEMORY_POINTS: Final = 4_000


def build_findings(
    findings: Sequence[Finding], folded: FoldedGraph, regions: Sequence[Region]
) -> tuple[SceneFinding, ...]:
    """Return the findings with indices of drawn nodes and of regions."""
    region_index = {region.region_id: i for i, region in enumerate(regions)}
    rows = []
    for finding in findings:
        culprit_file, culprit_line, culprit_text = source_line(finding.culprit)
        victim_file, victim_line, victim_text = source_line(finding.victim)
        rows.append(
            SceneFinding(
                slug=finding.slug,
                title=finding.title,
                confidence=finding.confidence,
                explanation=finding.explanation,
                fix=finding.fix,
                culprit_file=culprit_file,
                culprit_line=culprit_line,
                culprit_text=culprit_text,
                victim_file=victim_file,
                victim_line=victim_line,
                victim_text=victim_text,
                nodes=tuple(folded.index_of[n] for n in finding.nodes if n in folded.index_of),
                region=-1 if finding.region_id is None else region_index.get(finding.region_id, -1),
                mechanism=finding.mechanism,
            )
        )
    return tuple(rows)


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


def build_live_memory(analysis: Analysis) -> tuple[SceneLiveMemory, ...]:
    """Return all memory by kind at its peak, and the devices that have memory of no known kind.

    Empty if the recording does not have what is freed.
    """
    if not has_memory(analysis):
        return ()
    memory = measure_memory(analysis, as_plain=True)
    return tuple(
        SceneLiveMemory(kind=kind, nbytes=nbytes)
        for kind, nbytes in (
            *memory.peak.nbytes.items(),
            *((device, -1) for device in memory.not_counted),
        )
    )


def build_lines(analysis: Analysis) -> tuple[SceneLine, ...]:
    """Return all recorded source lines, apart from code that a compiler generated."""
    frames = analysis.log.of(FrameSeen)
    own = {frame.filename for frame in frames if not frame.library}
    generated = {frame.filename for frame in frames if frame.library} - own
    cells = {filename: f"In [{cell}]" for filename, cell in analysis.cells.items()}
    return tuple(
        SceneLine(filename=cells.get(filename, filename), lineno=lineno, text=text)
        for (filename, lineno), text in sorted(analysis.source_lines.items())
        if filename not in generated
    )
