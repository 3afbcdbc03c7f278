"""Random logs can be drawn."""

from __future__ import annotations

import json
from dataclasses import replace
from xml.etree import ElementTree as ET

from event_strategies import any_events, events_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autogradviz.analysis import Analysis
from autogradviz.event_log import Log
from autogradviz.events import (
    ModuleEntered,
    ModuleSeen,
    NodeSeen,
    OpCalled,
    RecomputeStarted,
    RegionEntered,
    SourceLineRead,
    TensorSaved,
)
from autogradviz.render.graphviz import to_dot
from autogradviz.render.svg.draw_graph import render_svg
from autogradviz.scene.build_scene import build_scene
from autogradviz.scene.payload import to_payload

NO_FILE = SourceLineRead(
    seq=0, time_ns=0, thread=0, stack_id=None, filename="\0", lineno=0, text=""
)


@settings(max_examples=150, deadline=None)
@given(st.lists(any_events(st.integers(-1, 4)), max_size=40))
@example([NO_FILE])
def test_random_events_give_a_picture_and_a_payload(events):
    scene = build_scene(Analysis(Log.from_events(events)), ())
    everything = [group.index for group in scene.groups]
    assert ET.fromstring(render_svg(scene, open_groups=everything)).tag.endswith("svg")
    payload = json.loads(json.dumps(to_payload(scene)))
    assert len(payload["nodes"]["index"]) == len(scene.nodes)


@settings(max_examples=150, deadline=None)
@given(st.lists(any_events(st.integers(-1, 4)), max_size=40))
def test_graph_only_scene_has_the_same_picture(events):
    model = Analysis(Log.from_events(events))
    whole, alone = build_scene(model, ()), build_scene(model, (), graph_only=True)
    assert render_svg(alone) == render_svg(whole)
    assert to_dot(alone) == to_dot(whole)
    names = ("spans", "storage_rows", "idle_ns")  # of other views
    cuts = {name: getattr(whole.summary, name) for name in names}
    assert replace(alone.summary, **cuts) == whole.summary
    assert (alone.storages, alone.spans, alone.memory, alone.lines) == ((), (), (), ())


NESTED = (
    ModuleEntered, ModuleSeen, NodeSeen, OpCalled, RecomputeStarted, RegionEntered, TensorSaved,
)  # fmt: skip
"""Kinds of events that refer to what is around them, so that a corrupt file has cycles."""


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(events_of(kind, st.integers(0, 2)) for kind in NESTED), max_size=20))
def test_cycles_of_parents_give_a_picture(events):
    scene = build_scene(Analysis(Log.from_events(events)), ())
    assert ET.fromstring(render_svg(scene)).tag.endswith("svg")
