"""Plotly figures of who keeps memory, and of gradients."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import plotly.graph_objects as go

from autogradviz.analysis.formatting import format_bytes
from autogradviz.render.plots import COLOURS, faint, plain, style
from autogradviz.scene.formatting import block_prefix

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis, Parameter

MOST_LAYERS: Final = 12
"""Modules that have a layer of their own; the smaller ones share one."""

WRONG: Final = {"none": "None", "zero": "zero", "nan": "NaN or infinite"}


def plot_saved_by_module(analysis: Analysis) -> go.Figure:
    """Return the bytes that backward keeps alive over time, stacked by the module that saved them.

    The layers add up to the curve of ``plot_memory``. Blocks ("h.0", "h.1") are told apart, what
    is inside them is not.
    """
    changes = _changes(analysis)
    times = sorted({time for layer in changes.values() for time in layer})
    levels = {label: _levels(layer, times) for label, layer in changes.items()}
    ranked = sorted(levels, key=lambda label: -max(levels[label]))
    rest = ranked[MOST_LAYERS:]
    if rest:
        together = [sum(levels[label][i] for label in rest) for i in range(len(times))]
        levels = {label: levels[label] for label in ranked[:MOST_LAYERS]}
        levels[f"{len(rest)} others"] = together
    layers = [
        go.Scatter(
            x=[time / 1e6 for time in times],
            y=values,
            customdata=[format_bytes(value) for value in values],
            name=plain(label),
            stackgroup="saved",
            line={"shape": "hv", "color": COLOURS["saved"], "width": 0.6},
            fillcolor=faint(COLOURS["saved"], 0.5 if i % 2 else 0.3),
            hovertemplate=f"{plain(label)}: %{{customdata}}<extra></extra>",
        )
        for i, (label, values) in enumerate(levels.items())
    ]
    figure = go.Figure(layers)
    style(figure, "Memory saved for backward, by module")
    figure.update_yaxes(tickformat="~s", ticksuffix="B", rangemode="tozero")
    figure.update_layout(height=420)
    return figure


def _changes(analysis: Analysis) -> dict[str, dict[int, int]]:
    """Return by how many bytes each module's part changes when, the earliest module first."""
    changes: dict[str, dict[int, int]] = {}
    for hold in analysis.memory.holds:
        saved = analysis.saved[hold.saved_id]
        node = analysis.graph.nodes.get(-1 if saved.node_id is None else saved.node_id)
        path = saved.op.module if saved.op else node.module if node else ""
        layer = changes.setdefault(block_prefix(path) or "no module", defaultdict(int))
        layer[hold.start_ns] += hold.nbytes
        if hold.end_ns is not None:
            layer[hold.end_ns] -= hold.nbytes
    return changes


def _levels(layer: dict[int, int], times: list[int]) -> list[int]:
    level, levels = 0, []
    for time in times:
        level += layer.get(time, 0)
        levels.append(level)
    return levels


def plot_gradients(analysis: Analysis) -> go.Figure:
    """Return the L2 norm of each parameter's gradient, as it was left when the recording ended.

    Parameters stand in the order in which they are used. One whose gradient is None, zero, NaN or
    infinite has a mark at the figure's edge with that word, and no bar.
    """
    leaves = [
        node.parameter
        for node in sorted(analysis.graph.nodes.values(), key=lambda node: node.order)
        if node.parameter is not None and node.parameter.name
    ]
    fine = [leaf for leaf in leaves if leaf.finite and leaf.norm]
    figure = go.Figure(
        go.Bar(
            orientation="h",
            x=[leaf.norm for leaf in fine],
            y=[plain(leaf.name) for leaf in fine],
            name="norm",
            marker={"color": COLOURS["leaf"], "line": {"width": 0}},
            hovertemplate="%{y}<br>norm %{x:.3g}<extra></extra>",
        )
    )
    wrong = [(leaf, word) for leaf in leaves if (word := _wrong(leaf, analysis))]
    least = min((leaf.norm for leaf in fine if leaf.norm), default=1.0)
    figure.add_trace(
        go.Scatter(
            x=[least] * len(wrong),
            y=[plain(leaf.name) for leaf, _ in wrong],
            text=[word for _, word in wrong],
            mode="markers+text",
            textposition="middle right",
            name="no norm",
            marker={"color": COLOURS["mutation"], "symbol": "x", "size": 8},
            hovertemplate="%{y}<br>%{text}<extra></extra>",
        )
    )
    style(figure, "Gradients")
    figure.update_xaxes(
        type="log", title={"text": "L2 norm"}, ticksuffix="", hoverformat=None, exponentformat="e"
    )
    order = [plain(leaf.name) for leaf in leaves]
    figure.update_yaxes(categoryorder="array", categoryarray=order[::-1], automargin=True)
    figure.update_layout(
        height=max(240, 120 + 18 * len(leaves)), showlegend=False, hovermode="closest"
    )
    return figure


def _wrong(leaf: Parameter, analysis: Analysis) -> str:
    """Return what is wrong with a gradient, "" where it has a norm or no backward ran."""
    if not leaf.finite:
        return WRONG["nan"]
    if leaf.norm == 0:
        return WRONG["zero"]
    ran = any(node.runs for node in analysis.graph.nodes.values())
    return WRONG["none"] if ran and not leaf.accumulated else ""
