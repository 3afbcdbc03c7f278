"""The scrubber, which replays the recording, and the timeline with its sums."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import recordings
from viewer_page import Stage, serve_sources

from autogradviz.scene.payload import to_payload

pytestmark = pytest.mark.one_in(3, reason="opens a page for each chart", in_ci=1)


def strip_point(stage, share):
    box = stage.page.locator(".agv-scrubber-bar").bounding_box()
    return box["x"] + 12 + share * (box["width"] - 24), box["y"] + box["height"] / 2


def scrub(stage, share):
    stage.page.mouse.click(*strip_point(stage, share))
    stage.settle()


def without_idle(scene):
    """Return a scene whose time axis is proportional."""
    return replace(scene, summary=replace(scene.summary, idle_ns=()))


def words(stage):
    return stage.page.get_attribute(".agv-scrubber-bar", "aria-valuetext")


def pixels(stage, selector=".agv-canvas"):
    return stage.page.evaluate(f"document.querySelector('{selector}').toDataURL()")


def test_scrubbing_displays_the_state_at_that_time(open_page, picture):
    scene = without_idle(recordings.checkpointed())
    stage = Stage(open_page(), scene)
    ended = pixels(stage)
    again = next(span for span in scene.spans if span.kind == "recompute")
    scrub(stage, (again.start_ns + again.end_ns) / 2 / scene.summary.end_ns)
    assert "recompute" in words(stage)
    assert pixels(stage) != ended
    stage.page.screenshot(path=picture("replay-light"))
    stage.page.click("button[aria-label='To the end']")
    stage.settle()
    assert "everything ran" in words(stage)
    assert pixels(stage) == ended


def test_recording_stopped_at_the_node_that_failed_not_at_the_one_to_blame(open_page):
    scene = recordings.diverging()
    first, failed = scene.nodes[:2]
    assert (first.state, failed.state) == ("not_run", "failed")
    blamed = replace(first, error=True), replace(failed, error=False)
    stage = Stage(open_page(), replace(scene, nodes=(*blamed, *scene.nodes[2:])))
    assert words(stage).endswith(f"stopped at {failed.name}")


def test_keys_move_from_event_to_event(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(), scene)
    stage.page.focus(".agv-scrubber-bar")
    stage.page.keyboard.press("Home")
    assert stage.page.get_attribute(".agv-scrubber-bar", "aria-valuenow") == "0"
    stage.page.keyboard.press("ArrowRight")
    first = min(node.born_ns for node in scene.nodes if node.born_ns >= 0)
    assert stage.page.get_attribute(".agv-scrubber-bar", "aria-valuenow") == str(round(first / 1e3))
    stage.page.keyboard.press("ArrowLeft")
    assert stage.page.get_attribute(".agv-scrubber-bar", "aria-valuenow") == "0"
    stage.page.keyboard.press("End")
    assert "everything ran" in words(stage)


def test_playing_advances_and_can_be_paused(open_page):
    stage = Stage(open_page(), recordings.plain())
    stage.page.click("button[aria-label=Play]")
    stage.page.wait_for_function(
        "document.querySelector('.agv-scrubber-bar').ariaValueText.includes(' of ')"
    )
    stage.page.click("button[aria-label=Pause]")
    stopped = words(stage)
    stage.settle()
    assert words(stage) == stopped


def test_node_has_four_phases_over_time(open_page):
    scene = recordings.plain()
    page = open_page()
    serve_sources(page)
    node = next(node for node in scene.nodes if node.op == "softmax")
    start, end = node.runs_ns
    times = [node.born_ns - 1, node.born_ns, start, end]
    phases = page.evaluate(
        """async ([born_ns, runs_ns, times]) => {
          const { phaseOf } = await import("http://viewer.test/scene/state_at_replayed_time.js");
          return times.map((time) => phaseOf({ born_ns, runs_ns }, time));
        }""",
        [node.born_ns, list(node.runs_ns), times],
    )
    assert phases == ["future", "created", "running", "ran"]


@pytest.fixture
def timeline(open_page):
    def show(scene, **options):
        stage = Stage(open_page(**options), scene)
        stage.show("timeline")
        stage.settle()
        return stage

    return show


def sum_rows(stage):
    rows = stage.page.locator(".agv-panel-profile tbody tr")
    return [[cell.text_content() for cell in row.locator("td").all()] for row in rows.all()]


def largest_row(stage):
    """Return the name of the row with the largest share, as in the sentence, a line first."""
    rows = sum_rows(stage)
    name = max(rows, key=lambda row: int(row[5].split()[0].strip("<")))[0]
    return name if ".py:" in name else f"“{name}”"


def test_timeline_sums_the_recording_and_a_selected_range(timeline, picture):
    scene = without_idle(recordings.checkpointed())
    for theme in ("light", "dark"):
        stage = timeline(scene, color_scheme=theme)
        stage.page.click(".agv-panel-profile .agv-choice >> text='node'")
        phases = {row[1] for row in sum_rows(stage)}
        rest = {"outside", "Python, PyTorch's engine"}
        assert phases - rest == {"forward", "backward", "recompute", "accumulate"}
        assert [row[0] for row in sum_rows(stage)].index("between ops") == len(sum_rows(stage)) - 1
        counts = {row[0]: int(row[3]) for row in sum_rows(stage) if row[1] == "accumulate"}
        accumulated = [s for s in scene.spans if s.label == "AccumulateGrad"]
        assert sum(counts.values()) == len(accumulated) > 0
        box = stage.page.locator(".agv-tracks canvas").bounding_box()
        stage.page.mouse.move(box["x"] + 200, box["y"] + 40)
        stage.page.mouse.down()
        stage.page.mouse.move(box["x"] + 520, box["y"] + 60, steps=4)
        stage.page.mouse.up()
        stage.settle()
        length = (320 / (box["width"] - 168)) * scene.summary.end_ns
        assert "–" in stage.page.text_content(".agv-panel-profile .agv-view-head")
        wall = stage.page.text_content(".agv-panel-selection dd >> nth=0")
        number, unit = wall.split()
        nanoseconds = {"µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
        assert float(number) * nanoseconds == pytest.approx(length, rel=0.02)
        stage.page.screenshot(path=picture(f"timeline-{theme}"))
        stage.page.focus(".agv-tracks-scroll")
        stage.page.keyboard.press("Escape")
        assert "whole recording" in stage.page.text_content(".agv-panel-profile .agv-view-head")


def test_sums_can_be_grouped_by_module_and_line(timeline):
    stage = timeline(recordings.plain())
    first = next(row for row in sum_rows(stage) if row[0].startswith("recordings.py:"))
    sentence = stage.page.locator(".agv-timeline .agv-sentence")
    assert sentence.text_content().startswith(f"{largest_row(stage)} takes ")
    heads = stage.page.locator(".agv-panel-profile th").all_text_contents()
    assert heads == ["line", "code", "module", "ops", "time", "share"]
    stage.page.click(".agv-panel-profile .agv-choice >> text='module'")
    assert "blocks.0–2" in {row[0] for row in sum_rows(stage)}
    sentence.get_by_role("button").click()
    chosen = stage.page.locator(".agv-chosen-line")
    assert chosen.locator(".agv-source-number").text_content() == first[0].split(":")[1]
    assert chosen.locator("code").text_content().strip() == first[1]


def tree_of(stage):
    """Return level, name and state of the rows of the tree of modules."""
    return stage.page.locator("[role=treegrid] tbody tr").evaluate_all(
        "rows => rows.map((row) => [Number(row.ariaLevel), row.cells[0].textContent, "
        "row.ariaExpanded])"
    )


def test_modules_are_a_tree_that_keys_fold_and_unfold(timeline, picture):
    stage = timeline(recordings.plain())
    page = stage.page
    page.click(".agv-panel-profile .agv-choice >> text='module'")
    folded = tree_of(stage)
    assert [1, "blocks.0–2", "false"] in folded
    first = page.locator("[role=treegrid] tbody tr[tabindex='0']")
    assert first.count() == 1
    row = page.locator("[role=treegrid] tbody tr", has_text="blocks.0–2")
    assert "sum of 3 modules" in row.text_content()
    row.click()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    tree = tree_of(stage)
    at = tree.index([1, "blocks.0–2", "true"])
    [level, name, state] = tree[at + 1]
    assert (level, state) == (2, "true")
    assert name in {"blocks.0", "blocks.1", "blocks.2"}
    assert {name for level, name, _ in tree if level == 3} == {"norm", "up", "down"}
    focused = "document.activeElement.cells[0].textContent"
    assert page.evaluate(focused) == name
    page.screenshot(path=picture("modules-as-a-tree"))
    page.keyboard.press("ArrowLeft")
    assert tree_of(stage)[at + 1] == [2, name, "false"]
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(focused) == "blocks.0–2"
    page.keyboard.press("Enter")
    assert tree_of(stage) == folded
    page.keyboard.press("End")
    assert page.evaluate(focused) == folded[-1][1]
    page.keyboard.press("Home")
    assert page.evaluate(focused) == folded[0][1]


def test_a_folded_module_has_the_time_of_its_parts(timeline):
    scene = recordings.plain()
    stage = timeline(scene)
    stage.page.click(".agv-panel-profile .agv-choice >> text='module'")
    row = stage.page.locator("[role=treegrid] tbody tr", has_text="blocks.0–2")
    parts = [each for each in scene.call_times if each.module.startswith("blocks.")]
    assert row.locator("td").nth(3).text_content() == f"{sum(each.count for each in parts)}"
    number, unit = row.locator("td").nth(4).text_content().split()
    shown = float(number) * {"µs": 1e3, "ms": 1e6}[unit]
    assert shown == pytest.approx(sum(each.ns for each in parts), rel=0.01)


def test_the_axis_of_a_chosen_step_begins_at_zero(timeline, picture):
    scene = without_idle(recordings.running_sum())
    stage = timeline(scene, viewport={"width": 1280, "height": 800})
    stage.page.evaluate(
        """() => {
          window.texts = [];
          const write = CanvasRenderingContext2D.prototype.fillText;
          CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
            texts.push(text);
            write.call(this, text, ...rest);
          };
        }"""
    )
    stage.page.locator(".agv-step-menu select").first.select_option(label="step 3")
    stage.settle()
    texts = stage.page.evaluate("texts")
    assert "in step 3" in texts
    at = len(texts) - 1 - texts[::-1].index("in step 3")
    step = scene.steps[3]
    ticks = [text for text in texts[:at] if text.endswith((" ms", " µs"))][-3:]
    units = {"µs": 1e3, "ms": 1e6}
    for tick in ticks:
        number, unit = tick.split()
        assert 0 <= float(number) * units[unit] <= 1.1 * (step.end_ns - step.start_ns)
    stage.page.screenshot(path=picture("timeline-of-a-step"))


def test_a_first_step_that_is_far_longer_is_marked_as_warm_up(timeline, picture):
    scene = recordings.running_sum()
    scene = replace(scene, summary=replace(scene.summary, warm_up=8.04))
    stage = timeline(scene)
    words = stage.page.text_content(".agv-timeline .agv-warm-up")
    assert words.startswith("step 0 is warm-up: 8.0× the time of the longest other step; ")
    # The title and the profile are of the other steps.
    assert "without the warm-up" in stage.page.text_content(".agv-panel-profile .agv-view-head")
    ran = sum(each.ns for each in scene.call_times if each.step > 0 and each.phase == "backward")
    row = stage.page.locator(".agv-phases tr", has_text="nodes").locator("td").nth(1)
    number, unit = row.text_content().split()
    assert float(number) * {"µs": 1e3, "ms": 1e6}[unit] == pytest.approx(ran, rel=0.01)
    stage.page.screenshot(path=picture("timeline-warm-up"))


def test_time_view_of_a_failing_step_says_when_backward_stopped(timeline):
    stage = timeline(recordings.failing())
    sentence = stage.page.text_content(".agv-timeline .agv-sentence")
    assert sentence.startswith("Backward stopped after ")
    assert f". {largest_row(stage)} takes " in sentence


def zoom_pan_and_return(stage):
    whole = pixels(stage, ".agv-tracks canvas")
    stage.page.focus(".agv-tracks-scroll")
    stage.page.keyboard.press("w")
    stage.settle()
    near = pixels(stage, ".agv-tracks canvas")
    assert near != whole
    stage.page.keyboard.press("d")
    stage.settle()
    assert pixels(stage, ".agv-tracks canvas") != near
    stage.page.keyboard.press("f")
    stage.settle()
    assert pixels(stage, ".agv-tracks canvas") == whole


def test_wasd_keys_zoom_and_pan(timeline):
    stage = timeline(recordings.plain())
    zoom_pan_and_return(stage)


def luminance(color):
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_bars_of_an_optimizer_stand_out_in_a_dark_page(open_page):
    page = open_page(color_scheme="dark", viewport={"width": 1280, "height": 800})
    stage = Stage(page, recordings.equal_steps())
    stage.show("timeline")
    page.evaluate(
        """() => {
          window.colors = [];
          const { fill } = CanvasRenderingContext2D.prototype;
          CanvasRenderingContext2D.prototype.fill = function (...rest) {
            colors.push(this.fillStyle);
            fill.call(this, ...rest);
          };
        }"""
    )
    stage.resize({"width": 1290, "height": 800})
    yellow = [
        color
        for color in page.evaluate("colors")
        if len(color) == 7 and int(color[1:3], 16) > int(color[5:7], 16) + 30
    ]
    assert yellow
    contrast = (luminance(yellow[0]) + 0.05) / (luminance("#16181b") + 0.05)
    assert contrast >= 3


def test_nested_backward_has_a_separate_track(timeline, picture):
    stage = timeline(recordings.reentrant())
    stage.page.click(".agv-panel-profile .agv-choice >> text='node'")
    label = stage.page.evaluate(
        "[...document.querySelectorAll('.agv-panel-profile td')].map((e) => e.textContent)"
    )
    assert "recompute" in label
    assert any(span.kind == "backward" and span.depth for span in stage.scene.spans)
    stage.page.screenshot(path=picture("nested-light"))


COUNTING = """async ({ times, requested }) => {
  const { eventAxis } = await import("http://viewer.test/scene/time_axis.js");
  const axis = eventAxis(times);
  return requested.map((time) => [axis.positionOf(time), axis.timeAt(axis.positionOf(time))]);
}"""


def test_event_axis_has_equal_distances_between_events(open_page):
    page = open_page()
    serve_sources(page)
    requested = [0, 10, 15, 20, 520, 1020, 5000]
    places = page.evaluate(COUNTING, {"times": [0, 10, 20, 1020], "requested": requested})
    assert [place for place, _ in places] == [0, 1, 1.5, 2, 2.5, 3, 3]
    assert [time for _, time in places] == [0, 10, 15, 20, 520, 1020, 1020]


@pytest.mark.parametrize(("view", "first"), [("timeline", "time"), ("tensors", "events")])
def test_each_chart_has_its_own_kind_of_axis(open_page, picture, view, first):
    stage = Stage(open_page(), recordings.checkpointed())
    stage.show(view)
    canvas = f".agv-pane-{view} canvas"
    buttons = stage.page.locator(f".agv-pane-{view} .agv-choice button")
    assert buttons.get_by_text(first, exact=True).get_attribute("aria-pressed") == "true"
    before = pixels(stage, canvas)
    other = {"time": "events", "events": "time"}[first]
    buttons.get_by_text(other, exact=True).click()
    stage.settle()
    assert pixels(stage, canvas) != before
    stage.page.screenshot(path=picture(f"{view}-{other}-light"))
    buttons.get_by_text(first, exact=True).click()
    stage.settle()
    assert pixels(stage, canvas) == before


def test_zooming_the_event_axis_shows_fewer_events(open_page):
    stage = Stage(open_page(), recordings.checkpointed())
    stage.show("timeline")
    stage.page.click(".agv-pane-timeline button[aria-label=events]")
    stage.settle()
    zoom_pan_and_return(stage)


def test_time_after_a_truncated_end_is_hatched(open_page, picture):
    scene = recordings.checkpointed()
    whole = Stage(open_page(), scene)
    assert "everything ran" in words(whole)
    notice = "the file is cut off or damaged after 60 events"
    summary = replace(scene.summary, torn=True, notices=(notice,))
    torn = Stage(open_page(), replace(scene, summary=summary))
    assert "torn after event" in words(torn)
    assert torn.page.text_content(".agv-notices").casefold() == f"{notice}.".casefold()
    box = torn.page.locator(".agv-scrubber-bar").bounding_box()
    strip = {**box, "x": box["x"] + box["width"] - 40, "width": 36}
    hatched, plain = (stage.page.screenshot(clip=strip) for stage in (torn, whole))
    assert hatched != plain
    torn.page.mouse.click(strip["x"] + 10, strip["y"] + 20)  # after the recorded time
    torn.settle()
    assert "torn after event" in words(torn)
    for view in ("timeline", "tensors"):
        torn.show(view)
        torn.settle()
        torn.page.screenshot(path=picture(f"torn-{view}-light"))


def test_shares_are_of_the_time_in_which_something_ran(open_page):
    scene = recordings.plain()
    summary = replace(scene.summary, idle_ns=(0, scene.summary.end_ns - 1_000))
    stage = Stage(open_page(), replace(scene, summary=summary))
    stage.show("timeline")
    stage.settle()
    cells = stage.page.locator(".agv-panel-profile tbody td.agv-nowrap").all_text_contents()
    shares = [0 if "<" in cell else int(cell.split()[0]) for cell in cells]
    # The rows took more than a microsecond: they are parts of their sum.
    assert max(shares) < 100
    assert abs(sum(shares) - 100) <= len(shares) / 2


TRACKS = """
async (payload) => {
  const { toScene } = await import("http://viewer.test/payload/decode.js");
  const { indexScene } = await import("http://viewer.test/scene/scene_index.js");
  const { timelineTracks } = await import("http://viewer.test/views/timeline/tracks_and_bars.js");
  return timelineTracks(indexScene(toScene(payload)));
}
"""


@pytest.mark.ci(reason="opens a report of every program")
@pytest.mark.parametrize(
    "kind",
    ["retained", "plain", "checkpointed", "reentrant", "failing", "dense", "audited", "compiled"],
)
def test_no_bar_of_a_backward_leaves_its_call(open_page, kind):
    page = open_page()
    serve_sources(page)
    tracks = page.evaluate(TRACKS, to_payload(getattr(recordings, kind)()))
    bars = [bar for track in tracks if track["name"] == "backward" for bar in track["bars"]]
    calls = [bar for bar in bars if bar["kind"] == "backward"]
    for bar in bars:
        assert any(c["start"] <= bar["start"] and bar["end"] <= c["end"] for c in calls), bar


@pytest.mark.parametrize("older", [False, True])
def test_time_of_older_steps_is_not_called_idle(timeline, older):
    scene = recordings.plain()
    end = scene.summary.end_ns
    first = replace(scene.steps[0], number=13 if older else 0)
    summary = replace(scene.summary, idle_ns=(0, end // 2))
    stage = timeline(replace(scene, summary=summary, steps=(first, *scene.steps[1:])))
    names = stage.page.locator(".agv-panel-selection dt").all_text_contents()
    texts = stage.page.locator(".agv-panel-selection dd").all_text_contents()
    duration = dict(zip(names, texts, strict=True))
    assert all(re.fullmatch(r"[\d.,]+\s\w+", text) for text in texts)
    assert ("of it older steps, not kept" in duration) is older
    assert ("of it idle: nothing ran" in duration) is not older
