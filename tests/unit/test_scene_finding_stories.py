"""Stories of findings: what happened, in order, and its pictures."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import make_log as m
import pytest
from make_scene import Box, model_of

from autogradviz import Trace
from autogradviz.analysis import Analysis
from autogradviz.diagnose.finding import Finding
from autogradviz.events import BackwardStarted, TensorUnpacked
from autogradviz.render.html_pages import render_html
from autogradviz.render.svg import finding_story as pictures
from autogradviz.render.svg.finding_story import render_frames, render_story
from autogradviz.scene.finding_stories import MAX_STATIONS, StoryBuilder

SVG = "{http://www.w3.org/2000/svg}"


def written():
    """Return a recording that fails since a saved tensor was written."""
    return Trace(
        m.make_log(
            m.began(model_name="Net"),
            m.tensor(1, (4,)),
            m.op("exp", (1,), nr=1, at="net.py:1"),
            m.op("mul_", (1,), inputs=(1,), writes=(1,), at="net.py:2"),
            m.bumped("mul_", at="net.py:2"),
            m.node(1, "ExpBackward0", nr=1),
            m.saved(100, 1, node=1, slot="result", nr=1),
            m.backward(roots=(1,)),
            m.unpacked(100, seen=1, node=1),
            m.raised(
                "RuntimeError",
                "one of the variables needed for gradient computation has been modified by an"
                " inplace operation",
                node=1,
            ),
        )
    )


def stations_of(trace):
    [story] = trace._viewer_scene.stories
    return [trace._viewer_scene.cause_steps[at] for at in story.steps]


def test_story_has_save_write_backward_and_exception_in_order():
    steps = stations_of(written())
    assert [re.sub(r"Error:.*", "Error", step.text) for step in steps] == [
        "exp saves ExpBackward0.result for backward",
        "mul_ writes a tensor after line 1 saved it: version 0 becomes 1",
        "backward starts",
        "backward reads ExpBackward0.result at version 1; it was saved at version 0",
        "RuntimeError",
    ]
    times = [step.time_ns for step in steps]
    assert times == sorted(times)
    assert min(times) >= 0


def finding(events, *, nodes=()):
    return Finding(
        slug="saved-tensor-mutated", title="t", culprit=None, victim=None, explanation="", fix="",
        confidence="likely", events=events, nodes=nodes,
    )  # fmt: skip


def test_long_stories_keep_the_first_and_the_last_station():
    analysis = model_of(*(Box(i, "exp", to=[i - 1] if i > 1 else []) for i in range(1, 12)))
    seqs = tuple(op.seq for op in analysis.ops)
    stations = StoryBuilder(analysis, [finding(seqs)]).stations(finding(seqs))
    assert len(stations) == MAX_STATIONS
    assert (stations[0].seq, stations[-1].seq) == (seqs[0], seqs[-1])


def test_too_little_makes_no_story():
    analysis = Analysis(m.make_log(m.began(), m.op("exp", (1,))))
    few = finding((analysis.ops[0].seq,))
    assert StoryBuilder(analysis, [few]).stations(few) == ()


def test_events_of_other_backwards_are_left_out():
    trace = written()
    [start] = trace.log.of(BackwardStarted)
    [unpack] = trace.log.of(TensorUnpacked)
    [op, _] = trace.analysis.ops
    one = finding((op.seq, unpack.seq), nodes=(1,))
    stations = StoryBuilder(trace.analysis, [one]).stations(one)
    assert [each.seq for each in stations[:3]] == [op.seq, start.seq, unpack.seq]


def test_animation_shows_all_stations_and_respects_reduced_motion():
    scene = written()._viewer_scene
    text = render_story(scene, scene.stories[0])
    root = ET.fromstring(text)
    count = len(scene.stories[0].steps)
    assert "@media (prefers-reduced-motion:no-preference){.s{animation" in text
    assert [text.count(f'<g class="s s{at}">') > 1 for at in range(count)] == [True] * count
    shown = " ".join(each.text for each in root.iter(f"{SVG}text"))
    assert "mul_ writes" in shown
    assert "net.py:2" in shown
    assert "script" not in text


def test_frames_draw_the_graph_once_and_mark_one_station_each():
    scene = written()._viewer_scene
    text = render_frames(scene, scene.stories[0], "graph")
    root = ET.fromstring(text)
    assert len(list(root.iter(f"{SVG}use"))) == len(scene.stories[0].steps)
    assert text.count(">Exp<tspan") == 1


@pytest.mark.parametrize("draw", [render_story, lambda *of: render_frames(*of, "a")])
def test_pictures_that_would_be_too_large_leave_the_graph_out(draw, monkeypatch):
    scene = written()._viewer_scene
    whole = draw(scene, scene.stories[0])
    monkeypatch.setattr(pictures, "MAX_BYTES", len(whole) - 1)
    smaller = draw(scene, scene.stories[0])
    assert len(smaller) < len(whole)
    assert ">Exp<tspan" not in smaller
    assert "mul_ writes" in smaller


def test_report_holds_the_frames():
    trace = written()
    assert '<use href="#story-0"/>' in render_html(trace._viewer_scene)


def test_export_says_if_there_is_no_story(tmp_path):
    written().export(tmp_path / "x.story.svg")
    Trace(m.make_log(m.began())).export(tmp_path / "y.story.svg")
    assert "has a story" not in (tmp_path / "x.story.svg").read_text(encoding="utf-8")
    assert "no finding of this recording has a story" in (tmp_path / "y.story.svg").read_text()
