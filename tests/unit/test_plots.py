"""Plotly figures: points, labels, and no network requests."""

import re

import make_log as m
import pytest

from autogradviz import events as e
from autogradviz.analysis import Analysis
from autogradviz.event_log import Log
from autogradviz.render.plotly_figures import (
    COLORS,
    CONFIG,
    TEXT,
    plot_gradients,
    plot_memory,
    plot_saved_by_module,
    plot_timeline,
)

HOSTILE = "<img src=//x.example onerror=alert(1)>"


def step():
    """Return two saves of 32 bytes, and the backward that releases them."""
    return Analysis(
        m.make_log(
            m.module(1, HOSTILE),
            m.entered_module(1, 1),
            m.op("exp", (1,), nr=0),
            m.op("exp", (2,), nr=1),
            m.exited_module(1, nr=2),
            m.node(1, "ExpBackward0", nr=0),
            m.node(2, "ExpBackward0", nr=1, to=[1]),
            m.saved(1, 1, node=1, slot="result", nr=0),
            m.saved(2, 2, node=2, slot="result", nr=1),
            m.backward(roots=(2,)),
            m.ran(2),
            m.released(2),
            m.ran(1),
            m.released(1),
            m.backward_ended(),
        )
    )


def named(figure):
    return {trace.name: trace for trace in figure.data}


def test_memory_rises_with_saves_and_falls_with_releases():
    area = named(plot_memory(step()))["saved for backward"]
    assert list(area.x) == [0.003, 0.004, 0.013, 0.016]
    assert list(area.y) == [32, 64, 32, 0]
    assert list(area.customdata) == ["32 B", "64 B", "32 B", "0 B"]
    assert (area.line.shape, area.fill) == ("hv", "tozeroy")


def test_memory_peak_is_labeled():
    (peak,) = plot_memory(step()).layout.annotations
    assert (peak.text, peak.x, peak.y) == ("peak 64 B", 0.004, 64)


def test_forward_and_backward_are_bands_behind_memory():
    bands = named(plot_memory(step()))
    assert list(bands) == ["forward", "backward", "saved for backward"]
    assert list(bands["forward"].x) == [0.002, 0.002, 0.005, 0.005, None]
    assert list(bands["backward"].y) == [0, 64, 64, 0, None]


def test_timeline_has_a_row_for_each_kind():
    figure = plot_timeline(step())
    assert list(named(figure)) == ["module", "forward", "backward", "node"]
    nodes = named(figure)["node"]
    assert list(nodes.base) == [0.011, 0.014]
    assert list(nodes.x) == pytest.approx([0.001, 0.001])
    assert figure.layout.yaxis.ticktext == ("module", "forward", "backward", "node")
    assert [trace.y[0] for trace in figure.data] == [0, 2, 4, 6]
    assert figure.layout.yaxis.tickvals == (0, 2, 4, 6)


ALL = [plot_memory, plot_timeline, plot_gradients, plot_saved_by_module]


@pytest.mark.parametrize("plot", ALL)
def test_empty_recording_can_be_plotted(plot):
    assert isinstance(plot(Analysis(Log())).to_json(), str)


def test_labels_are_escaped():
    (label, _, selected), *_ = named(plot_timeline(step()))["module"].customdata
    assert label == "&lt;img src=//x.example onerror=alert(1)&gt;"
    assert selected == HOSTILE  # as `TraceWidget.select` accepts it


@pytest.mark.parametrize("plot", ALL)
def test_displayed_figure_makes_no_requests(plot):
    page = plot(step()).to_html(config=CONFIG, include_plotlyjs=True)
    markup = re.sub(r"(<script)[^>]*>.*?(</script>)", r"\1>\2", page, flags=re.DOTALL)
    outside = r"<(?:script|link|img|iframe|object|embed|a|form)\b[^>]*\b(?:src|href|action|data)="
    assert "<script>" in markup
    assert re.findall(r"<script[^>]*\bsrc\b", page) == []
    assert re.findall(outside, markup) == []
    assert "plotlyServerURL" not in page.split("Plotly.newPlot(")[-1]
    assert '"sendChartToCloud"' in page.split("Plotly.newPlot(")[-1]


def test_cloud_button_is_removed():
    assert CONFIG["modeBarButtonsToRemove"] == ["sendChartToCloud"]


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("page", ["#ffffff", "#16181b"])
@pytest.mark.parametrize("color", sorted({TEXT, *COLORS.values()}))
def test_colors_have_sufficient_contrast_on_light_and_dark_pages(color, page):
    dark, light = sorted([luminance(color), luminance(page)])
    assert (light + 0.05) / (dark + 0.05) >= 3.5


def test_module_layers_sum_to_the_memory_curve():
    model = Analysis(
        m.make_log(
            m.module(1, "h.0.attn"),
            m.module(2, "h.1.attn"),
            m.op("exp", (1,), nr=0, call=1),
            m.op("exp", (2,), nr=1, call=2),
            m.entered_module(1, 1),
            m.entered_module(2, 2),
            m.node(1, "ExpBackward0", nr=0),
            m.node(2, "ExpBackward0", nr=1, to=[1]),
            m.saved(1, 1, node=1, slot="result", nr=0),
            m.saved(2, 2, node=2, slot="result", nr=1),
            m.backward(roots=(2,)),
            m.ran(2),
            m.released(2),
            m.backward_ended(),
        )
    )
    layers = named(plot_saved_by_module(model))
    assert list(layers) == ["h.0", "h.1"]
    sums = [sum(values) for values in zip(*(layer.y for layer in layers.values()), strict=True)]
    assert sums == list(plot_memory(model).data[-1].y)


def test_gradients_have_bars_and_missing_norms_have_text():
    names = ["a.w", "b.w", "c.w", "d.w"]
    facts = [m.tensor(i, (2,)) for i in range(1, 5)]
    facts += [m.parameter(i, name) for i, name in enumerate(names, 1)]
    facts += [m.leaf(i, i) for i in range(1, 5)]
    facts += [m.node(9, "AddBackward0", nr=1, to=[1, 2, 3, 4]), m.backward(roots=(9,)), m.ran(9)]
    facts += [m.accumulated(i, i) for i in range(1, 4)]
    facts += [
        m.fact(e.NormRead, backward_id=1, tensor_id=i, place="gradient", norm=norm)
        for i, norm in ((1, 0.5), (2, 0.0), (3, None))
    ]
    bars, marks = plot_gradients(Analysis(m.make_log(*facts, m.backward_ended()))).data
    assert dict(zip(bars.y, bars.x, strict=True)) == {"a.w": 0.5}
    assert dict(zip(marks.y, marks.text, strict=True)) == {
        "b.w": "zero",
        "c.w": "NaN or infinite",
        "d.w": "None",
    }
