"""Flame graphs of saved bytes at the peak and of time: module, line, then tensor or op.

A flame graph is made of rows, one for each module, line and label. Saved bytes are those of
``saved_memory``: each storage counts where it was saved first, so the frames add up to the peak.
Time is self time:

* forward, optimizer and outside of these: durations of the operators, and of compiled regions;
* backward: durations of the nodes, without recomputations and backwards inside them;
* recompute: durations of the recomputations; "outside ops" is what their operators do not cover.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autogradviz.analysis.compiled_region_times import region_times
from autogradviz.analysis.formatting import display_op_name, short_location, source_line
from autogradviz.analysis.idle_time import busy_time
from autogradviz.analysis.phases_of_ops import phases_of_ops
from autogradviz.events import BackwardStarted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from autogradviz.analysis.analysis import Analysis
    from autogradviz.analysis.types import SourceLocation, Span

FlameKind: TypeAlias = Literal["memory", "time"]
PHASES: Final = ("forward", "backward", "recompute", "optimizer", "outside")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlameRow:
    """The innermost frames of one module, line and label, added up."""

    kind: FlameKind
    phase: str  # of PHASES; "" for memory
    module: str
    filename: str  # "" if the line is unknown
    lineno: int
    place: str  # "gpt.py:53", "" if the line is unknown
    line: str  # "att = att.softmax(-1)"; the place without source text, or "no line"
    label: str  # "softmax result", "AddmmBackward0"
    count: int  # of storages, ops or node runs
    value: int  # bytes or nanoseconds


@dataclass(slots=True)
class FlameFrame:
    """One frame: a phase, a module, a line, or a tensor or op."""

    label: str
    kind: Literal["root", "phase", "module", "line", "leaf"]
    phase: str = ""
    value: int = 0
    count: int = 0
    place: str = ""  # of a line
    children: dict[tuple[str, str, str], FlameFrame] = field(default_factory=dict)


@dataclass(slots=True)
class _Sum:
    """The values added up in one row, and the largest of them."""

    count: int = 0
    value: int = 0
    largest: int = 0
    location: SourceLocation | None = None


class _Rows:
    """Adds values by module, line and label."""

    def __init__(self, kind: FlameKind) -> None:
        self._kind = kind
        self._sums: dict[tuple[str, str, str, str, str], _Sum] = {}
        self._lines: dict[int, tuple[SourceLocation, str, str]] = {}  # with place and text

    def add(
        self,
        phase: str,
        module: str,
        location: SourceLocation | None,
        label: str,
        value: int,
    ) -> None:
        """Add one storage, op or node run."""
        if value <= 0:
            return
        place, line = self._line(location)
        key = phase, module, place, line, label
        found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = _Sum()
        found.count += 1
        found.value += value
        if value > found.largest:
            found.largest, found.location = value, location

    def _line(self, location: SourceLocation | None) -> tuple[str, str]:
        """Return the place and the text of a line. Most ops share the objects of few lines."""
        if location is None:
            return "", "no line"
        found = self._lines.get(id(location))
        if found is None:
            place = short_location(location)
            found = self._lines[id(location)] = location, place, location.text or place
        return found[1:]

    def rows(self) -> Iterator[FlameRow]:
        """Yield the rows in the order in which they were first added."""
        for (phase, module, place, line, label), found in self._sums.items():
            filename, lineno, _ = source_line(found.location)
            yield FlameRow(
                kind=self._kind,
                phase=phase,
                module=module,
                filename=filename,
                lineno=lineno,
                place=place,
                line=line,
                label=label,
                count=found.count,
                value=found.value,
            )


def build_flame_rows(analysis: Analysis, kind: FlameKind) -> tuple[FlameRow, ...]:
    """Return the rows of a flame graph, earliest first.

    Args:
        analysis: the recording.
        kind: of saved memory at the peak, or of time.
    """
    rows = _Rows(kind)
    if kind == "memory":
        _add_storages(analysis, rows)
    else:
        _add_ops(analysis, rows)
        _add_runs(analysis, rows)
    order = {phase: at for at, phase in enumerate(PHASES)}
    return tuple(sorted(rows.rows(), key=lambda row: order.get(row.phase, -1)))


def build_frames(rows: tuple[FlameRow, ...], *, merge: bool = True) -> FlameFrame:
    """Return the rows as a tree of phases, modules, lines and labels.

    Args:
        rows: the rows, earliest first.
        merge: add up numbered modules: "h.0" to "h.11" are one frame, "h.*".
    """
    root = FlameFrame("", "root")
    for row in rows:
        path: list[tuple[Literal["phase", "module", "line", "leaf"], str, str]] = []
        if row.phase:
            path.append(("phase", row.phase, ""))
        path += [("module", part, "") for part in split_module(row.module, merge=merge)]
        path += [("line", row.line, row.place), ("leaf", row.label, "")]
        frame = root
        frame.value += row.value
        for part in path:
            kind, label, place = part
            child = FlameFrame(label, kind, row.phase, place=place)
            frame = frame.children.setdefault(part, child)
            frame.value += row.value
            frame.count += row.count
    return root


def split_module(module: str, *, merge: bool) -> list[str]:
    """Return the frames of a module: ["h.*", "attn"] for "h.3.attn", if merged, else with "h.3"."""
    frames: list[str] = []
    for part in module.split(".") if module else ():
        if part.isdigit() and frames:
            frames[-1] += ".*" if merge else f".{part}"
        else:
            frames.append(part)
    return frames


def _add_storages(analysis: Analysis, rows: _Rows) -> None:
    for storage in analysis.saved_memory.storages:
        if not storage.at_peak:
            continue
        saved = analysis.saved[storage.holds[0].saved_id]
        node = analysis.graph.nodes.get(-1 if storage.node_id is None else storage.node_id)
        if saved.is_argument:
            label = "checkpoint argument"
        else:
            op = saved.op or (node.op if node else None)
            saver = display_op_name(op.name) if op else node.name if node else "unknown op"
            label = f"{saver} {saved.slot or ''}".strip()
        rows.add("", storage.module, storage.location or saved.location, label, storage.nbytes)


def _add_ops(analysis: Analysis, rows: _Rows) -> None:
    phase_of = phases_of_ops(analysis)
    for op in analysis.ops:
        if op.phase == "forward":
            rows.add(
                phase_of(op),
                analysis.module_title(op),
                op.location,
                display_op_name(op.name),
                op.duration_ns,
            )
    for run in region_times(analysis):
        location = analysis.location(run.stack_id)
        rows.add("forward", "", location, "compiled region", run.own_ns)


def _add_runs(analysis: Analysis, rows: _Rows) -> None:
    """Add the self times of nodes, and the recomputations with their operators."""
    title = analysis.module_title
    stack_at = stacks_of_backwards(analysis)
    times = list(self_times(analysis))
    for span, self_ns in times:
        node = analysis.graph.nodes.get(-1 if span.ref is None else span.ref)
        if span.kind == "node":
            location, module = (node.location, title(node)) if node else (None, "")
            # What has no line of its own, such as the addition to a gradient, is of the backward.
            location = location or analysis.location(stack_at(span.start_ns))
            rows.add("backward", module, location, span.label, self_ns)
    rest: dict[str, int] = defaultdict(int)
    for span, self_ns in times:
        if span.kind == "recompute":
            rest[span.label] += self_ns
    for region in analysis.regions:
        for run in region.recomputations:
            for op in run.ops:
                name, module = display_op_name(op.name), title(op) or title(region)
                rows.add("recompute", module, op.location, name, op.duration_ns)
                rest[region.module or region.function] -= op.duration_ns
    locations = {region.module or region.function: region.location for region in analysis.regions}
    for label, rest_ns in rest.items():
        rows.add("recompute", label, locations.get(label), "outside ops", rest_ns)


def backward_times(
    analysis: Analysis,
) -> Iterator[tuple[str, SourceLocation | None, int, int]]:
    """Yield module, line, start and duration of node runs, recomputed ops and the rest of these."""
    regions = {(r.module or r.function): r for r in analysis.regions}
    for span, self_ns in self_times(analysis):
        of = (
            analysis.graph.nodes.get(-1 if span.ref is None else span.ref)
            if span.kind == "node"
            else regions.get(span.label)
        )
        module, location = (of.module, of.location) if of else ("", None)
        yield module, location, span.start_ns, self_ns
    for region in analysis.regions:
        for op in (op for run in region.recomputations for op in run.ops):
            module, location = op.module or region.module, op.location
            yield module, location, op.time_ns, op.duration_ns
            yield region.module, region.location, op.time_ns, -op.duration_ns


def stacks_of_backwards(analysis: Analysis) -> Callable[[int], int | None]:
    """Return a function from a time to the stack of the innermost backward that was running."""
    stacks = {event.backward_id: event.stack_id for event in analysis.log.of(BackwardStarted)}
    spans = sorted(
        (span for span in analysis.timeline.spans if span.kind == "backward"),
        key=lambda span: span.start_ns,
    )
    starts = [span.start_ns for span in spans]

    def stack_at(time_ns: int) -> int | None:
        for at in range(bisect_right(starts, time_ns) - 1, -1, -1):
            span = spans[at]
            if span.end_ns >= time_ns:
                return None if span.ref is None else stacks[span.ref]
        return None

    return stack_at


def self_times(analysis: Analysis) -> Iterator[tuple[Span, int]]:
    """Yield node runs and recomputations with their duration, without others inside them.

    Compilations inside them are left out too, and idle time: the end of a node that failed is not
    known.
    """
    spans = [s for s in analysis.timeline.spans if s.kind in {"node", "recompute"}]
    spans.sort(key=lambda s: (s.thread, s.start_ns, -s.end_ns))
    busy = busy_time(analysis)
    lengths = [busy(s.end_ns) - busy(s.start_ns) for s in spans]
    inner = [0] * len(spans)
    around: list[int] = []
    for at, span in enumerate(spans):
        while around and (
            spans[around[-1]].thread != span.thread or spans[around[-1]].end_ns <= span.start_ns
        ):
            around.pop()
        if around:
            inner[around[-1]] += lengths[at]
        around.append(at)
    for span, length, inside in zip(spans, lengths, inner, strict=True):
        yield span, max(0, length - inside)
