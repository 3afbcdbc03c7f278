"""Bars of the timeline, for bug programs and their corrected versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from interpreters import run_forked
from viewer_page import serve_sources

WRITE = Path(__file__).parents[1] / "calibration" / "write_scenes.py"
EVERY = 10  # programs; all of them take two minutes

ESCAPING = """
async (payload) => {
  const { toScene } = await import("http://viewer.test/payload/decode.js");
  const { indexScene } = await import("http://viewer.test/scene/scene_index.js");
  const { timelineTracks } = await import("http://viewer.test/views/timeline/tracks_and_bars.js");
  const crosses = (bar, other) =>
    bar.start < other.end && other.start < bar.end &&
    (bar.start < other.start || other.end < bar.end);
  const found = [];
  for (const { name, bars } of timelineTracks(indexScene(toScene(payload)))) {
    for (const bar of bars) {
      if (bar.end < bar.start) found.push([name, "ends before it starts", bar]);
      const parent = bars.find((each) => each.row < bar.row && crosses(bar, each));
      if (parent) found.push([name, "leaves its parent", bar, parent]);
    }
  }
  return found;
}
"""


@pytest.mark.ci(reason="records many programs")
def test_no_bar_leaves_its_parent(open_page, tmp_path):
    output = tmp_path / "scenes.jsonl"
    ran = run_forked(WRITE, output, EVERY, cwd=WRITE.parents[2], timeout=None)
    assert ran.returncode == 0, ran.stderr[-2000:]
    page = open_page()
    serve_sources(page)
    escaping = {}
    with output.open(encoding="utf-8") as lines:
        for line in lines:
            name, payload = json.loads(line)
            escaping[name] = page.evaluate(ESCAPING, payload)
    assert {name: found[:3] for name, found in escaping.items() if found} == {}
    assert len(escaping) > 50
