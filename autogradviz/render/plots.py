"""Plotly figures: saved memory over time and by module, when what ran, and gradients.

A figure is plain, so that it can be changed like any other, and its colors can be read on
light and on dark pages. Shown with ``CONFIG``, it offers no button that sends it anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import plotly.graph_objects as go

from autogradviz.analysis.formatting import format_bytes
from autogradviz.render.text import milliseconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import Analysis, Span

CONFIG: Final[dict[str, Any]] = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["sendChartToCloud"],
    "responsive": True,
}
"""How to show a figure without buttons that leave the machine: ``figure.show(config=CONFIG)``."""

TEXT: Final = "#737d88"
COLOURS: Final = {
    "saved": "#12875f",
    "forward": "#737d88",
    "backward": "#3b7dd8",
    "recompute": "#9467d6",
    "mutation": "#d9534a",
    "optimizer": "#9a7b1e",
    "leaf": "#9a7b1e",
    "module": "#737d88",
    "node": "#3b7dd8",
}
"""One color a meaning, the hues of the viewer between their light and their dark shade."""

GRID: Final = "rgba(128, 128, 128, 0.22)"
BANDS: Final = ("forward", "optimizer", "backward", "recompute")
LANES: Final = ("module", "forward", "optimizer", "backward", "recompute", "node")
_MILLISECONDS: Final = {"ticksuffix": " ms", "hoverformat": ".2f"}
LONGEST: Final = 4_000
"""Bars of one kind that a timeline shows at most: the longest ones."""


def plot_memory(analysis: Analysis) -> go.Figure:
    """Return the bytes that backward keeps alive, over time.

    The area rises where a storage is saved and falls where its last holder lets it go. Behind
    it stand forward, backward and recomputation.
    """
    curve = analysis.memory
    times = [time_ns / 1e6 for time_ns in curve.times_ns]
    sizes = [format_bytes(nbytes) for nbytes in curve.nbytes]
    area = go.Scatter(
        x=times,
        y=curve.nbytes,
        customdata=sizes,
        name="saved for backward",
        line={"shape": "hv", "color": COLOURS["saved"], "width": 1.5},
        fill="tozeroy",
        fillcolor=faint(COLOURS["saved"], 0.25),
        hovertemplate="%{customdata} (%{y:,} B)<br>%{x:.2f} ms<extra></extra>",
    )
    spans = [span for span in analysis.timeline.spans if span.kind in BANDS]
    figure = go.Figure([*_bands(spans, max(curve.nbytes, default=1)), area])
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
    style(figure, "Memory saved for backward")
    figure.update_yaxes(tickformat="~s", ticksuffix="B", rangemode="tozero")
    return figure


def plot_timeline(analysis: Analysis) -> go.Figure:
    """Return when modules, forwards, backwards, recomputations and nodes ran.

    Nested calls stand above each other. Of each kind the longest few thousand bars are shown.
    """
    figure = go.Figure()
    lanes: list[tuple[int, str]] = []
    for thread in sorted({span.thread for span in analysis.timeline.spans}):
        for kind in LANES:
            spans = [s for s in analysis.timeline.spans if (s.thread, s.kind) == (thread, kind)]
            if not spans:
                continue
            spans = sorted(spans, key=lambda s: s.start_ns - s.end_ns)[:LONGEST]
            height = 1 + max(span.depth for span in spans)
            top = lanes[-1][0] + 1 if lanes else 0
            figure.add_trace(_bars(kind, spans, top))
            lanes.append((top + height, kind if thread == 0 else f"{kind}, thread {thread}"))
    style(figure, "Timeline")
    tops = [0, *(bottom + 1 for bottom, _ in lanes)]
    figure.update_yaxes(
        autorange="reversed",
        showgrid=False,
        tickvals=[(top + low - 1) / 2 for top, (low, _) in zip(tops, lanes, strict=False)],
        ticktext=[label for _, label in lanes],
    )
    figure.update_layout(barmode="overlay", hovermode="closest", showlegend=False)
    return figure


def plot_html(figure: go.Figure) -> str:
    """Return a figure as a page of its own that works offline."""
    return str(figure.to_html(config=CONFIG, include_plotlyjs=True))


def _bands(spans: Sequence[Span], height: int) -> list[go.Scatter]:
    """Return one filled shape a kind, made of the rectangles of its spans."""
    bands = []
    for kind in BANDS:
        x: list[float | None] = []
        y: list[float | None] = []
        for span in spans:
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
                    fillcolor=faint(COLOURS[kind], 0.13 if kind != "recompute" else 0.3),
                    hoverinfo="skip",
                )
            )
    return bands


def _bars(kind: str, spans: Sequence[Span], top: int) -> go.Bar:
    """Return the bars of one kind and thread, one row a depth."""
    return go.Bar(
        orientation="h",
        base=[span.start_ns / 1e6 for span in spans],
        x=[(span.end_ns - span.start_ns) / 1e6 for span in spans],
        y=[top + span.depth for span in spans],
        width=0.86,
        name=kind,
        customdata=[
            (plain(span.label or kind), milliseconds(span.end_ns - span.start_ns)) for span in spans
        ],
        marker={"color": COLOURS[kind], "line": {"width": 0}, "opacity": 0.85},
        hovertemplate="%{customdata[0]}<br>%{customdata[1]}, from %{base:.2f} ms<extra></extra>",
    )


def style(figure: go.Figure, title: str) -> None:
    """Make a figure readable on any page: nothing behind it, words in a middle grey."""
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
        xaxis={**axis, "title": {"text": "since the recording began"}, **_MILLISECONDS},
        yaxis=axis,
    )


def faint(color: str, opacity: float) -> str:
    """Return "#rrggbb" as it is drawn with an opacity."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity})"


def plain(text: str) -> str:
    """Return text that plotly shows as it stands: labels are read as a little HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
