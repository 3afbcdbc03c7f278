"""The coordinates of the viewer equal those of Python."""

from __future__ import annotations

import pytest
import recordings
from viewer_page import serve_sources

from autogradviz.scene.layout.coordinates import place
from autogradviz.scene.payload import to_payload

PLACE = """
async ({ payload, openings }) => {
  const { toScene } = await import("http://viewer.test/payload/decode.js");
  const { place } = await import("http://viewer.test/layout/coordinates.js");
  const scene = toScene(payload);
  return openings.map((open) => place(scene, new Set(open)));
}
"""


def rounded(number):
    return round(number, 6) + 0.0  # no negative zero


def flat(placement):
    """Return every number of a placement computed by Python."""
    boxes = [[b.kind, b.ref, *map(rounded, (b.x, b.y, b.width, b.height))] for b in placement.boxes]
    lines = [
        [
            line.group,
            line.link,
            [[rounded(x), rounded(y)] for x, y in line.points],
            line.arrow,
            line.stub,
            line.label and [rounded(part) for part in line.label],
        ]
        for line in placement.lines
    ]
    return {
        "size": [rounded(placement.width), rounded(placement.height)],
        "boxes": boxes,
        "lines": lines,
    }


def flat_script(placement):
    """Return the same numbers of a placement computed by the viewer."""
    boxes = [
        [b["kind"], b["ref"], *(rounded(b[key]) for key in ("x", "y", "width", "height"))]
        for b in placement["boxes"]
    ]
    lines = [
        [
            line["group"],
            line["link"],
            [[rounded(x), rounded(y)] for x, y in line["points"]],
            line["arrow"],
            line["stub"],
            line["label"] and [rounded(part) for part in line["label"]],
        ]
        for line in placement["lines"]
    ]
    return {
        "size": [rounded(placement["width"]), rounded(placement["height"])],
        "boxes": boxes,
        "lines": lines,
    }


@pytest.mark.one_in(3, reason="draws each graph", in_ci=1)
@pytest.mark.parametrize(
    "name", ["plain", "checkpointed", "failing", "diverging", "dense", "empty"]
)
def test_viewer_and_python_compute_the_same_placement(open_page, name):
    scene = getattr(recordings, name)()
    everything = [group.index for group in scene.groups]
    at_first = [group.index for group in scene.groups if group.open]
    openings = [[0], at_first, everything]
    page = open_page()
    serve_sources(page)
    placed = page.evaluate(PLACE, {"payload": to_payload(scene), "openings": openings})
    assert [flat_script(each) for each in placed] == [
        flat(place(scene, opening)) for opening in openings
    ]
