"""The widget's Python side."""

from __future__ import annotations

import json
import zlib

import pytest
from small_scene import small_scene
from traitlets import TraitError

from autogradviz.render.widget import HEIGHT, TraceWidget, mimebundle
from autogradviz.scene.payload import to_payload

WIDGET = "application/vnd.jupyter.widget-view+json"


def test_the_payload_is_the_scene_deflated():
    scene = small_scene(name="→ExpBackward0")
    widget = TraceWidget(scene)
    assert json.loads(zlib.decompress(widget.payload)) == json.loads(json.dumps(to_payload(scene)))


def test_the_selection_can_be_observed():
    widget = TraceWidget(small_scene())
    seen = []
    widget.observe(lambda change: seen.append(change["new"]), names="selected")
    told = {
        "kind": "node",
        "id": 7,
        "name": "ExpBackward0",
        "module": "",
        "location": "train.py:12",
    }
    widget.set_state({"selected": told})
    widget.set_state({"selected": {}})
    assert seen == [told, {}]


def test_the_height_is_a_number_of_pixels_that_shows_something():
    assert TraceWidget(small_scene()).height == HEIGHT
    assert TraceWidget(small_scene(), height=400).height == 400
    with pytest.raises(TraitError, match="height"):
        TraceWidget(small_scene(), height=10)


def test_the_bundle_holds_widget_picture_and_words():
    bundle, metadata = mimebundle(small_scene(), "<svg/>", "in words")
    assert list(bundle) == ["text/plain", WIDGET, "image/svg+xml"]
    assert (bundle["text/plain"], bundle["image/svg+xml"]) == ("in words", "<svg/>")
    assert metadata == {}
