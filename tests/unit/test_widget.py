"""The Python side of the widget."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from ipywidgets.widgets.widget import _instances
from make_scene import scene_of, tower, unpack, unpack_column
from small_scene import small_scene
from traitlets import TraitError

from autogradviz.render.widget import COLORS, HEIGHT, TraceWidget, bundle_for_cell
from autogradviz.scene.payload import pack_column, to_payload

WIDGET = "application/vnd.jupyter.widget-view+json"


def test_payload_is_the_compressed_scene():
    scene = small_scene(name="→ExpBackward0")
    widget = TraceWidget(scene)
    assert unpack(widget._payload) == json.loads(json.dumps(to_payload(scene)))


def test_selection_can_be_observed():
    widget = TraceWidget(small_scene())
    seen = []
    widget.observe(lambda change: seen.append(change["new"]), names="selected")
    node = {
        "kind": "node",
        "id": 7,
        "name": "ExpBackward0",
        "module": "",
        "location": "train.py:12",
    }
    widget.set_state({"selected": node})
    widget.set_state({"selected": {}})
    assert seen == [node, {}]


def test_height_has_a_minimum_in_pixels():
    assert TraceWidget(small_scene()).height == HEIGHT
    assert TraceWidget(small_scene(), height=400).height == 400
    with pytest.raises(TraitError, match="height"):
        TraceWidget(small_scene(), height=10)


def test_bundle_contains_widget_picture_and_text():
    widget = TraceWidget(small_scene(), picture=lambda: "<svg/>", words=lambda: "in words")
    bundle, metadata = bundle_for_cell(widget)
    assert list(bundle) == ["text/plain", WIDGET, "image/svg+xml"]
    assert (bundle["text/plain"], bundle["image/svg+xml"]) == ("in words", "<svg/>")
    assert metadata == {}


def test_manually_displayed_widget_has_a_static_picture(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, **_: shown.append(bundle))
    TraceWidget(small_scene())._ipython_display_()
    widget = TraceWidget(small_scene(), picture=lambda: "<svg/>")
    widget._ipython_display_()
    assert [WIDGET in bundle for bundle in shown] == [True, True, False]
    assert shown[2]["image/svg+xml"] == "<svg/>"
    assert widget._still in shown[2]["text/html"]


def tower_widget():
    return TraceWidget(scene_of(*tower(3, leaves=["h.0.w"])))


def test_select_accepts_ops_ids_modules_lines_and_parameters():
    widget = tower_widget()
    widget.select("relu")
    assert (widget.selected["kind"], widget.selected["name"]) == ("node", "ReluBackward0")
    first = widget.selected["id"]
    widget.select(first)
    assert widget.selected["id"] == first
    widget.select("h.1")
    assert (widget.selected["kind"], widget.selected["module"]) == ("group", "h.1")
    widget.select("net.py:1")
    assert widget.selected["name"] == "ExpBackward0"
    widget.select("h.0.w")
    assert widget.selected["module"] == "h.0"
    widget.select(None)
    assert widget.selected == {}


def test_unknown_name_raises_with_suggestions():
    with pytest.raises(ValueError, match="nothing in this trace is named 'rellu'.*'relu'"):
        tower_widget().select("rellu")
    with pytest.raises(ValueError, match="no node 999"):
        tower_widget().select(999)
    with pytest.raises(ValueError, match="nothing in this trace is named 'h.7'"):
        tower_widget().focus("h.7")


def test_every_focus_call_sends_a_change():
    widget = tower_widget()
    seen = []
    widget.observe(lambda change: seen.append(change["new"]["module"]), names="focused")
    for module in ("h.1", "h.1", ""):
        widget.focus(module)
    assert seen == ["h.1", "h.1", ""]
    assert widget.focused["group"] == 0


def test_colors_are_known_to_the_viewer():
    widget = TraceWidget(small_scene())
    assert widget.color_by == COLORS[0] == "kind"
    widget.color_by = "bytes"
    with pytest.raises(TraitError, match="color_by"):
        widget.color_by = "rainbow"
    source = Path(__file__).parents[2] / "assets" / "viewer" / "scene" / "graph_colorings.js"
    listed = re.search(r"COLORS = .*?\[(.*?)\]", source.read_text(encoding="utf-8"), re.DOTALL)
    assert tuple(re.findall(r'"(\w+)"', listed[1])) == COLORS


class Shell:
    """A notebook shell with cell ids and run ids."""

    def __init__(self):
        self.cell, self.run = "a", 0

    def get_parent(self):
        return {"metadata": {"cellId": self.cell}, "header": {"msg_id": f"run {self.run}"}}


def test_rerun_of_a_cell_closes_its_old_widgets(monkeypatch):
    shell = Shell()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    monkeypatch.setattr("autogradviz.render.widget._DISPLAYED", {})
    before = set(_instances)

    def show():
        bundle_for_cell(TraceWidget(small_scene(), picture=lambda: "<svg/>"))

    def alive():
        made = set(_instances) - before
        return sum(isinstance(_instances[key], TraceWidget) for key in made)

    show()
    show()  # two widgets in one run: both stay open
    assert alive() == 2
    shell.run = 1
    show()
    assert alive() == 1
    shell.cell = "b"
    show()
    assert alive() == 2


@pytest.mark.parametrize(
    ("values", "annotation", "text"),
    [
        ([], "int", "[]"),
        ([0, 0, 0], "int", "c[0,3]"),
        ([[1], [1]], "tuple[int, ...]", "c[[1],2]"),
        ([None, None], "int | None", "c[null,2]"),
        ([1000, 1001, 999, 1004], "int", "d[1000,1,-2,5]"),
        ([5, 9000, 5], "int", "[5,9000,5]"),
        ([[1000, 1001], [], [1002]], "tuple[int, ...]", "l[[2,0,1],[1000,1,1]]"),
        ([1000, None, 1001], "int | None", "[1000,null,1001]"),
        ([1000.5, 1001, 1002], "float", "[1000.5,1001,1002]"),
        ([0] * 9 + [1], "int", '{"runs":[0,9,1,1]}'),
        ([1000, *range(1000, 1016)], "int | None", 'd{"runs":[1000,1,0,1,1,15]}'),
        ([[]] * 9 + [[1]], "tuple[int, ...]", 'l[{"runs":[0,9,1,1]},{"runs":[1,1]}]'),
    ],
)
def test_packed_column_has_the_same_values(values, annotation, text):
    assert pack_column(values, annotation) == text
    assert unpack_column(text) == values


def test_questions_of_the_reader_are_answered():
    widget = TraceWidget(small_scene(), answer=lambda subject: {"subject": subject, "steps": []})
    assert widget._answer == {}
    widget.set_state({"_question": "node 0"})
    assert widget._answer == {"subject": "node 0", "steps": []}


def test_a_question_that_fails_is_answered_with_the_error():
    def refuse(subject):
        raise ValueError(subject)

    widget = TraceWidget(small_scene(), answer=refuse)
    widget.set_state({"_question": "node 9"})
    assert widget._answer == {"subject": "node 9", "question": "ValueError: node 9"}


def test_a_widget_without_a_function_that_answers_has_no_answer():
    assert TraceWidget(small_scene())._answer is None
