"""The picture of a run: ranks by steps, collectives, ops of two ranks, the views of one rank."""

from __future__ import annotations

import dataclasses
from array import array

import pytest
import recordings
from test_accessibility import VIOLATIONS, overflowing

from autogradviz.distributed_runs.scene import pack_run
from autogradviz.distributed_runs.scene import schema as run_schema
from autogradviz.render.distributed_runs import render_run_html
from autogradviz.scene.payload import pack

STEPS, RANKS = 40, 60
ODD = 7  # in the first row
BRANCHED = 12  # the step
SAME = run_schema.RECORDED | run_schema.ENDED
NAN = float("nan")


def cells():
    size = STEPS * RANKS
    state = array("B", [SAME]) * size
    state[BRANCHED] |= run_schema.OTHER_OPS
    state[BRANCHED + 1] |= run_schema.OTHER_COLLECTIVES
    ops = array("i", [25]) * size
    ops[BRANCHED] = 27
    time_ms = array("f", [20.0 + at % STEPS for at in range(size)])
    unknown = array("f", [NAN]) * size
    saved = array("f", [1024.0 * (1 + at % STEPS) for at in range(size)])
    gradient = unknown[:]
    gradient[:3] = array("f", [0.25, 4.0, float("inf")])
    return run_schema.RunCells(
        state=state, ops=ops, time_ms=time_ms, first_ms=unknown, saved=saved, gradient=gradient,
        loss=unknown,
    )  # fmt: skip


def rank(number, *, odd=()):
    return run_schema.RunRank(
        rank=number, group=0, host="node-1", end="complete", is_complete=True,
        file=f"rank-{number:05}.agv", nbytes=2000, odd=odd, reference=0 if odd else -1,
        holds_parts=True,
    )  # fmt: skip


def pair(own, own_place, other, other_place):
    return run_schema.OpPair(own=own, own_place=own_place, other=other, other_place=other_place)


def run_scene():
    lane = run_schema.Lane(
        label="ranks 0-6, 8-59", ranks=(0, *range(8, RANKS)), states=("same",) * 6,
        calls=(0,) * 6, numbers=tuple(range(6)),
    )  # fmt: skip
    odd_lane = dataclasses.replace(
        lane, label="rank 7", ranks=(ODD,), states=("same",) * 5 + ("missing",),
        calls=(0,) * 5 + (-1,), numbers=(0, 1, 2, 3, 4, -1),
    )  # fmt: skip
    call = run_schema.LaneCall(
        name="allreduce_", tensors="float32 16×4", file="train.py", line=20, text="all_reduce(g)"
    )
    return run_schema.RunScene(
        title="run/",
        facts="60 of 60 ranks on 1 host, 40 steps",
        verdict="59 equal, 1 odd",
        notices=(),
        steps=tuple(range(STEPS)),
        groups=(
            run_schema.RunGroup(
                label="ranks 0-59", first=0, count=RANKS, odd=1, usual_ops=(25,) * STEPS
            ),
        ),
        ranks=(
            rank(ODD, odd=("other ops, first in step 12: 27 ops instead of 25",)),
            *(rank(number) for number in range(RANKS) if number != ODD),
        ),
        cells=cells(),
        findings=(
            run_schema.RunFindingCard(
                heading="on rank 7", ranks=(ODD,), slug="rank-diverged", title="rank 7 differs",
                confidence="likely", explanation="It calls abs.\n    x.abs()", fix="# broadcast it",
                culprit_file="train.py", culprit_line=12, culprit_text="if rank: x.abs()",
                victim_file="", victim_line=0, victim_text="",
            ),
        ),
        lanes=(
            run_schema.CollectiveLanes(
                label="group default_pg (ranks 0-59)", first=0, total=6, steps=(0, 0, 0, 1, 1, 1),
                numbers=tuple(range(6)), calls=(call,), lanes=(lane, odd_lane), hidden=0,
            ),
        ),
        hidden_lanes=0,
        differences=(
            run_schema.OpDifference(
                rank=ODD, reference=0, step=BRANCHED, index=3,
                rows=(
                    pair("mm", "a.py:1", "mm", "a.py:1"),
                    pair("abs", "a.py:2", "", ""),
                ),
            ),
        ),
        command="autogradviz html run/{file}",
    )  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Return a report that contains the views of the odd rank only."""
    path = tmp_path_factory.mktemp("run") / "run.html"
    opened = {ODD: pack(recordings.plain())}
    path.write_text(render_run_html(pack_run(run_scene()), opened, title="run/"), encoding="utf-8")
    return path


@pytest.fixture
def open_report(open_page, report):
    def opened(**options):
        page = open_page(**options)
        page.goto(report.as_uri())
        page.wait_for_selector(".agv-run-bar")
        return page

    return opened


def cell(page, row, column):
    """Return the page coordinates of a cell of the first rows."""
    box = page.locator(".agv-run-main canvas").bounding_box()
    width = (box["width"] - 66 - 10) / STEPS
    return box["x"] + 66 + (column + 0.5) * width, box["y"] + 20 + 22 + (row + 0.5) * 18


def color(page, point):
    x, y = point
    return page.evaluate(
        """async ([x, y]) => {
          // A change is drawn in the next frame.
          await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
          const canvas = document.querySelector(".agv-run-main canvas");
          const box = canvas.getBoundingClientRect();
          return [...canvas.getContext("2d").getImageData(x - box.x, y - box.y, 1, 1).data];
        }""",
        [x, y],
    )


def test_click_on_a_rank_shows_what_differs_and_opens_its_views(open_report, picture):
    page = open_report()
    assert page.text_content("h1 >> nth=-1") == "run/"
    assert color(page, cell(page, 0, BRANCHED + 1))[:3] == [0xB3, 0x26, 0x1E]
    usual = color(page, cell(page, 0, 3))[:3]
    assert max(usual) - min(usual) < 12, "gray"
    page.mouse.move(*cell(page, 0, BRANCHED))
    tooltip = page.locator(".agv-run-main .agv-tooltip").inner_text()
    assert tooltip.splitlines()[:3] == [
        "rank 7, step 12",
        "27 ops, most ranks 25",
        "other ops than most ranks",
    ]
    page.mouse.click(*cell(page, 0, BRANCHED))
    card = page.locator(".agv-run-rank")
    assert "27 ops instead of 25" in card.inner_text()
    card.get_by_role("button", name="Compare with rank 0").click()
    assert page.locator(".agv-run-differs").inner_text().split() == ["abs", "a.py:2", "—"]
    page.screenshot(path=picture("run-light"))
    card.get_by_role("button", name="Open its own views").click()
    page.click(".agv-run-own .agv-rail [data-view=graph]")
    page.wait_for_selector(".agv-run-own .agv-canvas[data-camera]")
    page.get_by_role("button", name="Back to run/").click()
    assert page.locator(".agv-run-own").count() == 0
    page.mouse.click(*cell(page, 0.55, 4))  # the first of the lower rows
    assert card.locator("code").inner_text() == "autogradviz html run/rank-00000.agv"
    page.select_option("select[aria-label=Color]", "time")
    legend = page.locator(".agv-run-legend").inner_text()
    assert " ".join(legend.split()) == "≤ 20 ms ≥ 59 ms"
    assert color(page, cell(page, 0, 39)) != color(page, cell(page, 0, 0))


def test_rows_of_saved_bytes_and_gradient_norms(open_report, picture):
    page = open_report()
    menu = "select[aria-label=Color]"
    assert page.locator(f"{menu} option").all_inner_texts() == [
        "differences", "step time", "time to first collective", "peak saved bytes",
        "gradient norm", "loss",
    ]  # fmt: skip
    page.select_option(menu, "saved")
    assert color(page, cell(page, 0, 39)) != color(page, cell(page, 0, 0))
    page.select_option(menu, "gradient")
    legend = page.locator(".agv-run-legend").inner_text()
    assert " ".join(legend.split()) == "≤ 0.250 ≥ 4.00 NaN or infinite"
    unknown, first, second, infinite = (color(page, cell(page, 0, at)) for at in (5, 0, 1, 2))
    assert len({tuple(each) for each in (unknown, first, second, infinite)}) == 4
    assert unknown[3] == 0, "transparent"
    assert infinite[:3] == [0xB3, 0x26, 0x1E]
    page.mouse.move(*cell(page, 0, 1))
    tooltip = page.locator(".agv-run-main .agv-tooltip").inner_text().splitlines()
    assert tooltip[-2:] == ["peak saved bytes 2.0 kB", "gradient norm of this rank's part 4.00"]
    page.screenshot(path=picture("run-gradients-light"))


def test_collectives_mark_the_missing_one_and_keys_move_through_the_cells(open_report):
    page = open_report()
    canvas = page.locator(".agv-run-bottom canvas")
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 110 + 5.5 * 44, box["y"] + 34 + 36)
    tooltip = page.locator(".agv-run-bottom .agv-tooltip").inner_text()
    assert tooltip.splitlines() == ["rank 7", "collective 5, step 1", "these ranks do not call it"]
    page.focus(".agv-run-main .agv-run-scroll")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    assert page.text_content(".agv-run-main [aria-live]").startswith("rank 0, step 1, 25 ops")
    assert page.text_content(".agv-run-rank h3") == "Rank 0"
    scroller = page.locator(".agv-run-main .agv-run-scroll")
    before = scroller.evaluate("each => each.scrollWidth")
    page.get_by_role("button", name="Zoom in").click()
    page.wait_for_function(f"document.querySelector('.agv-run-scroll').scrollWidth > {before}")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (680, "dark"), (360, "light")])
def test_run_fits_and_violates_no_rule_of_axe(open_report, axe, picture, width, scheme):
    page = open_report(viewport={"width": width, "height": 760}, color_scheme=scheme)
    if width == 1280:
        page.mouse.click(*cell(page, 0, 2))
    assert overflowing(page) == []
    page.evaluate(axe)
    assert page.evaluate(VIOLATIONS) == []
    page.screenshot(path=picture(f"run-{width}-{scheme}"))
