"""Whatever a file says, it has a picture."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

from any_events import any_events
from hypothesis import given, settings
from hypothesis import strategies as st

from autogradviz.log import Log
from autogradviz.model import Model
from autogradviz.render.svg import render_svg
from autogradviz.scene.build import build_scene
from autogradviz.scene.payload import to_payload


@settings(max_examples=150, deadline=None)
@given(st.lists(any_events(st.integers(-1, 4)), max_size=40))
def test_any_events_make_a_picture_and_a_payload(events):
    scene = build_scene(Model(Log.from_events(events)), ())
    everything = [group.index for group in scene.groups]
    assert ET.fromstring(render_svg(scene, open_groups=everything)).tag.endswith("svg")
    payload = json.loads(json.dumps(to_payload(scene)))
    assert len(payload["nodes"]["index"]) == len(scene.nodes)
