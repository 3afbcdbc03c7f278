"""Plotly figures: saved memory over time and by module, timeline, and gradient norms.

The figures have no template and transparent backgrounds; their colors are readable on light and
dark pages. Shown with ``CONFIG``, they have no button that sends data to a server.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import plotly.graph_objects as go

from autogradviz.analysis.formatting import format_bytes, format_duration
from autogradviz.scene.label_text_and_width import block_prefix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import Analysis, Parameter, Span
    from autogradviz.analysis.flame_graph import FlameFrame, FlameKind

CONFIG: Final[dict[str, Any]] = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["sendChartToCloud"],
    "responsive": True,
}
"""Options without buttons that send data to a server: ``figure.show(config=CONFIG)``."""

TEXT: Final = "#737d88"
COLORS: Final = {
    "saved": "#12875f",
    "forward": "#737d88",
    "backward": "#3b7dd8",
    "recompute": "#9467d6",
    "mutation": "#d9534a",
    "optimizer": "#9a7b1e",
    "leaf": "#9a7b1e",
    "module": "#737d88",
    "node": "#3b7dd8",
    "device": "#12875f",
}
"""One color per meaning: the hues of the viewer, between its light and its dark shades."""

GRID: Final = "rgba(128, 128, 128, 0.22)"
BANDS: Final = ("forward", "optimizer", "backward", "recompute")
LANES: Final = ("module", "forward", "optimizer", "backward", "recompute", "node", "device")
MAX_BARS: Final = 4_000
"""Maximum number of bars of one kind in a timeline. The longest ones are kept."""

_NO_MODULE: Final = "no module"
MAX_LAYERS: Final = 12
"""Maximum number of modules with their own layer. Smaller modules share one layer."""

_MILLISECONDS: Final = {"ticksuffix": " ms", "hoverformat": ".2f"}
_BYTE_AXIS: Final = {"tickformat": "~s", "ticksuffix": "B", "rangemode": "tozero"}
_NO_NORM: Final = {"none": "None", "zero": "zero", "nan": "NaN or infinite"}


def plot_memory(analysis: Analysis) -> go.Figure:
    """Return the bytes of storage held for backward over time, as an area.

    It rises when a storage is saved, and falls when its last saved tensor is released. Forward,
    backward and recomputation are shaded behind it.
    """
    curve = analysis.memory
    times = [time_ns / 1e6 for time_ns in curve.times_ns]
    sizes = [format_bytes(nbytes) for nbytes in curve.nbytes]
    area = go.Scatter(
        x=times,
        y=curve.nbytes,
        customdata=sizes,
        name="saved for backward",
        line={"shape": "hv", "color": COLORS["saved"], "width": 1.5},
        fill="tozeroy",
        fillcolor=_translucent(COLORS["saved"], 0.25),
        hovertemplate="%{customdata} (%{y:,} B)<br>%{x:.2f} ms<extra></extra>",
    )
    figure = go.Figure([*_bands(analysis, max(curve.nbytes, default=1)), area])
    if curve.nbytes:
        peak = curve.peak
        figure.add_annotation(
            x=times[peak],
            y=curve.nbytes[peak],
            text=f"peak {sizes[peak]}",
            arrowcolor=TEXT,
            ax=36,
            ay=-22,
        )
    _apply_style(figure, "Memory saved for backward")
    figure.update_yaxes(**_BYTE_AXIS)
    return figure


def _bands(analysis: Analysis, height: int) -> list[go.Scatter]:
    """Return one filled shape per kind of span, made of the rectangles of its spans."""
    bands = []
    for kind in BANDS:
        x: list[float | None] = []
        y: list[float | None] = []
        for span in analysis.timeline.spans:
            if span.kind == kind and span.depth == 0:
                start, end = span.start_ns / 1e6, span.end_ns / 1e6
                x += [start, start, end, end, None]
                y += [0, height, height, 0, None]
        if x:
            bands.append(
                go.Scatter(
                    x=x,
                    y=y,
                    name=kind,
                    mode="lines",
                    line={"width": 0},
                    fill="toself",
                    fillcolor=_translucent(COLORS[kind], 0.13 if kind != "recompute" else 0.3),
                    hoverinfo="skip",
                )
            )
    return bands


def plot_timeline(analysis: Analysis) -> go.Figure:
    """Return the spans of modules, forwards, backwards, recomputations and nodes as bars.

    Nested calls are stacked. Of each kind, the longest few thousand bars are shown. The last entry
    of a bar's ``customdata`` is the node id or the module that ``TraceWidget.select`` accepts, or
    None.
    """
    figure = go.Figure()
    lanes: list[tuple[int, str]] = []
    for thread in sorted({span.thread for span in analysis.timeline.spans}):
        for kind in LANES:
            spans = [s for s in analysis.timeline.spans if (s.thread, s.kind) == (thread, kind)]
            if not spans:
                continue
            spans = sorted(spans, key=lambda s: s.start_ns - s.end_ns)[:MAX_BARS]
            height = 1 + max(span.depth for span in spans)
            top = lanes[-1][0] + 1 if lanes else 0
            figure.add_trace(_bars(kind, spans, top))
            name = kind if thread == 0 else f"{kind}, thread {thread}"
            lanes.append((top + height, spans[0].lane or name))
    _apply_style(figure, "Timeline")
    tops = [0, *(bottom + 1 for bottom, _ in lanes)]
    figure.update_yaxes(
        autorange="reversed",
        showgrid=False,
        tickvals=[(top + low - 1) / 2 for top, (low, _) in zip(tops, lanes, strict=False)],
        ticktext=[label for _, label in lanes],
    )
    figure.update_layout(barmode="overlay", hovermode="closest", showlegend=False)
    return figure


def _bars(kind: str, spans: Sequence[Span], top: int) -> go.Bar:
    """Return the bars of one kind and thread, one row per depth."""
    durations = [span.end_ns - span.start_ns for span in spans]
    labels = [_escape(span.label or kind) for span in spans]
    return go.Bar(
        orientation="h",
        base=[span.start_ns / 1e6 for span in spans],
        x=[duration / 1e6 for duration in durations],
        y=[top + span.depth for span in spans],
        width=0.86,
        name=kind,
        customdata=list(
            zip(labels, map(format_duration, durations), map(_selectable, spans), strict=True)
        ),
        marker={"color": COLORS[kind], "line": {"width": 0}, "opacity": 0.85},
        hovertemplate="%{customdata[0]}<br>%{customdata[1]}, from %{base:.2f} ms<extra></extra>",
    )


def _selectable(span: Span) -> int | str | None:
    """Return the node id or the module of a bar, as ``TraceWidget.select`` accepts it."""
    if span.kind == "node":
        return span.ref
    return (span.label or None) if span.kind == "module" else None


def plot_saved_by_module(analysis: Analysis) -> go.Figure:
    """Return the bytes held for backward over time, stacked by the module that saved them.

    The layers add up to the curve of ``plot_memory``. Blocks ("h.0", "h.1") have separate layers;
    the modules inside a block share its layer. The last entry of a point's ``customdata`` is the
    module that ``TraceWidget.select`` accepts, or None.
    """
    changes = _changes_by_module(analysis)
    times = sorted({time for layer in changes.values() for time in layer})
    layers = {
        label: list(accumulate(layer.get(time, 0) for time in times))
        for label, layer in changes.items()
    }
    modules = layers.keys() - {_NO_MODULE}
    ranked = sorted(layers, key=lambda label: -max(layers[label]))
    rest = ranked[MAX_LAYERS:]
    if rest:
        others = [sum(layers[label][i] for label in rest) for i in range(len(times))]
        layers = {label: layers[label] for label in ranked[:MAX_LAYERS]}
        layers[f"{len(rest)} others"] = others
    figure = go.Figure(
        [
            go.Scatter(
                x=[time / 1e6 for time in times],
                y=values,
                customdata=[
                    (format_bytes(value), label if label in modules else None) for value in values
                ],
                name=_escape(label),
                stackgroup="saved",
                line={"shape": "hv", "color": COLORS["saved"], "width": 0.6},
                fillcolor=_translucent(COLORS["saved"], 0.5 if i % 2 else 0.3),
                hovertemplate=f"{_escape(label)}: %{{customdata[0]}}<extra></extra>",
            )
            for i, (label, values) in enumerate(layers.items())
        ]
    )
    _apply_style(figure, "Memory saved for backward, by module")
    figure.update_yaxes(**_BYTE_AXIS)
    figure.update_layout(height=420)
    return figure


def _changes_by_module(analysis: Analysis) -> dict[str, dict[int, int]]:
    """Return changes in bytes by time for each module, earliest module first."""
    changes: dict[str, dict[int, int]] = {}
    for storage in analysis.saved_memory.storages:
        layer = changes.setdefault(block_prefix(storage.module) or _NO_MODULE, defaultdict(int))
        for hold in storage.holds:
            layer[hold.start_ns] += hold.nbytes
            if hold.end_ns is not None:
                layer[hold.end_ns] -= hold.nbytes
    return changes


def plot_gradients(analysis: Analysis) -> go.Figure:
    """Return the L2 norm of each parameter's final gradient, as bars in order of use.

    A gradient that is None, zero, NaN or infinite has no bar but a labeled marker at the edge.
    """
    leaves = [
        node.parameter
        for node in sorted(analysis.graph.nodes.values(), key=lambda node: node.order)
        if node.parameter is not None and node.parameter.name
    ]
    with_norm = [leaf for leaf in leaves if leaf.finite and leaf.norm]
    figure = go.Figure(
        go.Bar(
            orientation="h",
            x=[leaf.norm for leaf in with_norm],
            y=[_escape(leaf.name) for leaf in with_norm],
            name="norm",
            marker={"color": COLORS["leaf"], "line": {"width": 0}},
            hovertemplate="%{y}<br>norm %{x:.3g}<extra></extra>",
        )
    )
    backward_ran = any(node.runs for node in analysis.graph.nodes.values())
    problems = [(leaf, _problem(leaf, backward_ran=backward_ran)) for leaf in leaves]
    problems = [(leaf, problem) for leaf, problem in problems if problem]
    least = min((leaf.norm for leaf in with_norm if leaf.norm), default=1.0)
    figure.add_trace(
        go.Scatter(
            x=[least] * len(problems),
            y=[_escape(leaf.name) for leaf, _ in problems],
            text=[problem for _, problem in problems],
            mode="markers+text",
            textposition="middle right",
            name="no norm",
            marker={"color": COLORS["mutation"], "symbol": "x", "size": 8},
            hovertemplate="%{y}<br>%{text}<extra></extra>",
        )
    )
    _apply_style(figure, "Gradients")
    figure.update_xaxes(
        type="log", title={"text": "L2 norm"}, ticksuffix="", hoverformat=None, exponentformat="e"
    )
    order = [_escape(leaf.name) for leaf in leaves]
    figure.update_yaxes(categoryorder="array", categoryarray=order[::-1], automargin=True)
    figure.update_layout(
        height=max(240, 120 + 18 * len(leaves)), showlegend=False, hovermode="closest"
    )
    return figure


def plot_flame_graph(root: FlameFrame, kind: FlameKind, title: str) -> go.Figure:
    """Return a flame graph as an icicle figure; a click zooms in."""
    ids: list[str] = []
    labels: list[str] = []
    parents: list[str] = []
    values: list[int] = []
    colors: list[str] = []
    waiting = [(root, "", "all")]
    while waiting:
        frame, parent, frame_id = waiting.pop()
        ids.append(frame_id)
        labels.append(_escape(frame.label or "total"))
        parents.append(parent)
        values.append(frame.value)
        hue = COLORS.get("saved" if kind == "memory" else frame.phase, COLORS["forward"])
        colors.append(_translucent(hue, 0.24 if frame.kind == "line" else 0.45))
        waiting += [
            (child, frame_id, f"{frame_id}/{at}")
            for at, child in enumerate(frame.children.values())
        ]
    shown = [
        format_bytes(value) if kind == "memory" else format_duration(value) for value in values
    ]
    figure = go.Figure(
        go.Icicle(
            ids=ids,
            labels=labels,
            parents=parents,
            values=values,
            branchvalues="total",
            customdata=shown,
            tiling={"orientation": "v"},
            marker={"colors": colors},
            texttemplate="%{label} %{customdata}",
            hovertemplate="%{label}<br>%{customdata}, %{percentRoot:.1%}<extra></extra>",
        )
    )
    _apply_style(figure, title)
    figure.update_layout(height=480, margin={"l": 10, "r": 10, "t": 48, "b": 10})
    return figure


def _problem(leaf: Parameter, *, backward_ran: bool) -> str:
    """Return the problem of a gradient, "" if it has a norm or if no backward ran."""
    if not leaf.finite:
        return _NO_NORM["nan"]
    if leaf.norm == 0:
        return _NO_NORM["zero"]
    return _NO_NORM["none"] if backward_ran and not leaf.accumulated else ""


def _apply_style(figure: go.Figure, title: str) -> None:
    """Make a figure readable on any page: transparent background, text in a medium gray."""
    axis = {"gridcolor": GRID, "zeroline": False, "linecolor": GRID}
    figure.update_layout(
        template="none",
        title={"text": title, "font": {"size": 14}, "x": 0.01},
        font={"color": TEXT, "size": 12},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 70, "r": 20, "t": 72, "b": 48},
        height=360,
        hovermode="x",
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 1, "xanchor": "right"},
        xaxis={**axis, "title": {"text": "since the start of the recording"}, **_MILLISECONDS},
        yaxis=axis,
    )


def _translucent(color: str, opacity: float) -> str:
    """Return "#rrggbb" with an opacity, as "rgba(…)"."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity})"


def _escape(text: str) -> str:
    """Return text in which plotly finds no markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
