"""What stands beside the graph: findings, regions, timeline, memory, source and the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes, format_shape
from autogradviz.events import BackwardStarted, StateChanged
from autogradviz.fast_dataclass import maker
from autogradviz.scene.formatting import plural
from autogradviz.scene.schema import (
    SceneChange,
    SceneDiffRow,
    SceneFinding,
    SceneLine,
    SceneMemory,
    SceneRegion,
    SceneSpan,
    SceneSummary,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Op, Region
    from autogradviz.diagnose.finding import Finding
    from autogradviz.scene.fold import FoldedGraph

_make_span = maker(SceneSpan)

MAX_SPANS: Final = 20_000
"""Bars of the timeline; where there are more, the longest."""

MOMENTS: Final = frozenset({"toggle", "random", "buffer"})
"""Spans without length."""

MAX_MOMENTS: Final = 4_000
"""Of each kind, the first ones."""

MAX_MEMORY_POINTS: Final = 4_000


def draw_findings(
    findings: Sequence[Finding], folded: FoldedGraph, regions: Sequence[Region]
) -> tuple[SceneFinding, ...]:
    """Return the findings with indices of drawn nodes and of regions."""
    region_of = {region.region_id: i for i, region in enumerate(regions)}
    return tuple(
        SceneFinding(
            slug=finding.slug,
            title=finding.title,
            confidence=finding.confidence,
            explanation=finding.explanation,
            fix=finding.fix,
            culprit_file=finding.culprit.place if finding.culprit else "",
            culprit_line=finding.culprit.lineno if finding.culprit else 0,
            culprit_text=finding.culprit.text if finding.culprit else "",
            victim_file=finding.victim.place if finding.victim else "",
            victim_line=finding.victim.lineno if finding.victim else 0,
            victim_text=finding.victim.text if finding.victim else "",
            nodes=tuple(folded.index_of[n] for n in finding.nodes if n in folded.index_of),
            region=-1 if finding.region_id is None else region_of.get(finding.region_id, -1),
        )
        for finding in findings
    )


def draw_regions(regions: Sequence[Region]) -> tuple[SceneRegion, ...]:
    """Return the checkpoint regions."""
    index_of = {region.region_id: i for i, region in enumerate(regions)}
    return tuple(
        SceneRegion(
            index=i,
            region_id=region.region_id,
            parent=index_of.get(region.parent_region_id or 0, -1)
            if region.parent_region_id is not None
            else -1,
            module=region.module,
            function=region.function,
            reentrant=region.reentrant,
            early_stop=region.early_stop,
            filename=region.location.place if region.location else "",
            lineno=region.location.lineno if region.location else 0,
            saved=len(region.saved),
            recomputes=len(region.recomputations),
            outcome=(region.recomputations[-1].outcome or "") if region.recomputations else "",
            options=_options(region),
        )
        for i, region in enumerate(regions)
    )


def _options(region: Region) -> str:
    options = [] if region.preserve_rng else ["preserve_rng_state=False"]
    options += ["debug=True"] if region.debug else []
    if not region.reentrant and region.determinism_check != "default":
        options.append(f'determinism_check="{region.determinism_check}"')
    groups = {a.exec_group for a in region.recomputations if a.exec_group is not None}
    options += [f"GraphExecGroup {group}" for group in sorted(groups)]
    return ", ".join(options)


def draw_diffs(regions: Sequence[Region]) -> tuple[SceneDiffRow, ...]:
    """Return forward against the last recomputation, op by op, region by region."""
    rows: list[SceneDiffRow] = []
    for i, region in enumerate(regions):
        if not region.recomputations:
            continue
        forward_nr = recompute_nr = 0
        for pair in region.recomputations[-1].pairs:
            forward_nr += pair.forward is not None
            recompute_nr += pair.recompute is not None
            rows.append(
                SceneDiffRow(
                    region=i,
                    status=pair.status,
                    forward_nr=forward_nr if pair.forward else 0,
                    forward_op=_op_name(pair.forward),
                    forward_shape=_op_shape(pair.forward),
                    forward_line=_op_line(pair.forward),
                    recompute_nr=recompute_nr if pair.recompute else 0,
                    recompute_op=_op_name(pair.recompute),
                    recompute_shape=_op_shape(pair.recompute),
                    recompute_line=_op_line(pair.recompute),
                    filename=_op_file(pair.forward) or _op_file(pair.recompute),
                    policy=pair.forward.policy.replace("_", " ") if pair.forward else "",
                )
            )
    return tuple(rows)


def draw_changes(analysis: Analysis) -> tuple[SceneChange, ...]:
    """Return what was not the same around a region when it ran again, region by region."""
    region_of = {region.region_id: i for i, region in enumerate(analysis.regions)}
    changes = {}  # of several recomputations the last one's
    for event in analysis.log.of(StateChanged):
        if event.region_id in region_of:
            location = analysis.location(event.stack_id)
            changes[event.region_id, event.state_name] = SceneChange(
                region=region_of[event.region_id],
                name=event.state_name,
                before=event.before,
                after=event.after,
                by_forward=event.in_forward,
                filename=location.filename if location else "",
                lineno=location.lineno if location else 0,
            )
    return tuple(sorted(changes.values(), key=lambda change: change.region))


def _op_name(op: Op | None) -> str:
    return op.name if op else ""


def _op_shape(op: Op | None) -> str:
    return format_shape(op.outputs[0].shape) if op and op.outputs else ""


def _op_line(op: Op | None) -> int:
    return op.location.lineno if op and op.location else 0


def _op_file(op: Op | None) -> str:
    return op.location.place if op and op.location else ""


def draw_spans(analysis: Analysis, folded: FoldedGraph) -> tuple[SceneSpan, ...]:
    """Return the bars of the timeline, in the order in which they began."""
    region_of = {region.region_id: i for i, region in enumerate(analysis.regions)}
    refs = {"node": folded.index_of, "recompute": region_of}
    spans = [span for span in analysis.timeline.spans if span.kind not in MOMENTS]
    if len(spans) > MAX_SPANS:
        spans.sort(key=lambda span: span.start_ns - span.end_ns)
        spans = sorted(spans[:MAX_SPANS], key=lambda span: (span.start_ns, span.depth))
    for kind in sorted(MOMENTS):
        spans += [span for span in analysis.timeline.spans if span.kind == kind][:MAX_MOMENTS]
    return tuple(
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
        )
        for span in spans
    )


def draw_memory(analysis: Analysis) -> tuple[SceneMemory, ...]:
    """Return the saved-memory curve; of a long one the highest point of each stretch."""
    curve = analysis.memory
    stretch = len(curve.nbytes) // MAX_MEMORY_POINTS + 1
    points = []
    for start in range(0, len(curve.nbytes), stretch):
        part = range(start, min(start + stretch, len(curve.nbytes)))
        top = max(part, key=curve.nbytes.__getitem__)
        points.append(SceneMemory(time_ns=curve.times_ns[top], nbytes=curve.nbytes[top]))
    return tuple(points)


def draw_lines(analysis: Analysis) -> tuple[SceneLine, ...]:
    """Return all source lines that were read."""
    return tuple(
        SceneLine(filename=_place(analysis, filename), lineno=lineno, text=text)
        for (filename, lineno), text in sorted(analysis.source_lines.items())
    )


def _place(analysis: Analysis, filename: str) -> str:
    cell = analysis.cells.get(filename)
    return filename if cell is None else f"In [{cell}]"


def summarize(analysis: Analysis, title: str | None) -> SceneSummary:
    """Return the header's figures."""
    started, error, graph = analysis.started, analysis.error, analysis.graph
    peak = max(analysis.memory.nbytes, default=0)
    words = [plural(len(graph.nodes), "node"), plural(len(graph.edges), "edge")]
    if analysis.regions:
        words.append(plural(len(analysis.regions), "checkpoint region"))
    if peak:
        words.append(f"peak saved {format_bytes(peak)}")
    name = (started.model_name if started else None) or "autograd graph"
    return SceneSummary(
        title=name if title is None else title,
        subtitle=" · ".join(words),
        torch_version=started.torch_version if started else "",
        nodes=len(graph.nodes),
        edges=len(graph.edges),
        ops=len(analysis.ops),
        events=len(analysis.log),
        storages=len(analysis.stored),
        peak_nbytes=peak,
        end_ns=analysis.end_ns,
        backwards=len(analysis.log.of(BackwardStarted)),
        regions=len(analysis.regions),
        recomputations=sum(len(region.recomputations) for region in analysis.regions),
        error_type=error.type_name if error else "",
        error_message=error.message if error else "",
        notices=tuple(notice.message for notice in analysis.notices),
        torn=analysis.log.problem is not None,
    )
