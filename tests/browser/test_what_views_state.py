"""Statements of the views hold for the line and the moment that they name."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import recordings
from viewer_page import Stage

from autogradviz.analysis.formatting import format_bytes

pytestmark = pytest.mark.one_in(2, reason="opens a page for each view", in_ci=1)


def test_values_at_the_entry_of_a_region_are_named_so(open_page, picture):
    stage = Stage(open_page(viewport={"width": 1440, "height": 900}), recordings.routed())
    stage.show("checkpoint")
    forward, again = stage.page.locator(".agv-sources > div").all()
    assert "at entry: Routed.calls = 3" in forward.text_content()
    assert "at entry: Routed.calls = 8" in again.text_content()
    for column, value, ran, idle in (
        (forward, "3 → 4", "sigmoid", "gelu"),
        (again, "8 → 9", "gelu", "sigmoid"),
    ):
        update = column.locator(".agv-source-line", has_text="Routed.calls += 1")
        assert update.locator(".agv-source-tag").text_content() == value
        lit = column.locator(".agv-source-line.agv-changed", has_text=ran)
        assert f"ran {ran}" in lit.text_content()
        absent = column.locator(".agv-source-line.agv-absent", has_text=idle)
        assert "no op ran" in absent.text_content()
    first = stage.page.text_content(".agv-diff-first")
    assert "gelu" in first
    assert "sigmoid" in first
    assert "not reached" in stage.page.text_content(".agv-regions")
    stage.page.screenshot(path=picture("checkpoint-replaced"))


def test_a_stale_save_looks_stale_and_is_found(open_page):
    scene = recordings.failing()
    stage = Stage(open_page(), scene)
    stale = [badge for badge in scene.saved_badges if badge.state in {"stale", "broken"}]
    assert {badge.state for badge in stale} == {"broken"}
    stage.page.fill(".agv-search input", "written")
    found = stage.page.locator(".agv-search [role=option]").count()
    assert found >= len({badge.node for badge in stale}) + 1  # and the writer


def test_a_node_is_in_the_box_of_the_step_that_made_it():
    scene = recordings.running_sum()
    labels = {}
    for group in scene.groups:
        inside = group
        while inside.kind != "step" and inside.parent >= 0:
            inside = scene.groups[inside.parent]
        labels[group.index] = inside.label if inside.kind == "step" else ""
    assert sum(group.kind == "step" for group in scene.groups) == len(scene.steps) == 6
    for node in scene.nodes:
        step = next(s for s in scene.steps if node.born_ns <= s.end_ns)
        assert labels[node.group] == f"step {step.number}"


def test_parameters_without_a_node_are_in_search_and_outline(open_page):
    scene = recordings.audited()
    assert [each.name for each in scene.unused_parameters][-2:] == ["unused.weight", "unused.bias"]
    healthy = replace(
        scene.unused_parameters[-1],
        name="body.weight",
        module="body",
        requires_grad=False,
        state="frozen",
    )
    unused = (*scene.unused_parameters, healthy)
    stage = Stage(open_page(), replace(scene, unused_parameters=unused))
    ghost = stage.page.locator(".agv-unused", has_text="unused")
    assert "never called" in ghost.text_content()
    frozen = stage.page.locator(".agv-unused", has_text="frozen")
    colors = [each.evaluate("e => getComputedStyle(e).color") for each in (ghost, frozen)]
    assert colors[0] != colors[1]
    ghost.click()
    assert "no recorded op reads unused.weight" in stage.page.text_content(".agv-trail")
    stage.page.keyboard.press("Escape")
    stage.page.keyboard.press("/")
    stage.page.keyboard.type("unused.b")
    result = stage.page.locator(".agv-search [role=option]").first
    assert result.text_content() == "parameterunused.biasnever called"
    result.click()
    assert "unused.bias" in stage.page.text_content(".agv-trail h3")


def test_single_steps_are_compared_without_percentages_of_time(open_page):
    stage = Stage(open_page(), recordings.adversarial())
    stage.show("compare")
    rows = stage.page.locator(".agv-phase-row").all_text_contents()
    assert rows
    assert not any("%" in row for row in rows)
    words = stage.page.text_content(".agv-compare .agv-panel-wide")
    assert "times are of one step each" in words
    assert "ms" not in stage.page.text_content(".agv-difference")


def test_predicted_times_are_shares_of_a_step(open_page):
    stage = Stage(open_page(), recordings.plain())
    stage.show("memory")
    panel = stage.page.locator(".agv-memory")
    titles = panel.locator("th").evaluate_all("heads => heads.map((each) => each.title)")
    assert "times of one step: rough, or unknown" in titles
    # A module that takes longer than the step ran what the process loaded.
    rows = " ".join(panel.locator("tbody tr").all_text_contents())
    assert re.search(r"about \+(\d\d?|100) %", rows)
    assert not re.search(r"\+\d{4,} %", rows)


def test_a_checkpointed_step_is_drawn_with_and_without_checkpoints(open_page):
    scene = recordings.checkpointed()
    stage = Stage(open_page(), scene)
    stage.show("checkpoint")
    picture = stage.page.locator(".agv-held-picture canvas")
    assert picture.bounding_box()["height"] > 50
    without = max(point.nbytes for point in scene.memory_without_checkpoints)
    assert without == scene.summary.without_checkpoints_nbytes
    # Both runs are alike: nothing is next to the sums.
    assert stage.page.locator(".agv-region-diffs:visible").count() == 0


def test_folded_regions_are_the_sum_of_their_module_rows(open_page, picture):
    scene = recordings.routed()  # six blocks, of which one was recomputed differently
    stage = Stage(open_page(viewport={"width": 1280, "height": 800}), scene)
    stage.show("checkpoint")
    rows = stage.page.locator(".agv-regions tbody tr")
    folded = rows.filter(has=stage.page.locator("[aria-expanded]"))
    assert folded.count() == 1
    assert "0–5" in folded.text_content()
    assert f"sum of {len(scene.regions)} regions" in folded.text_content()
    freed = sum(region.freed_nbytes for region in scene.regions)
    assert folded.locator("td").nth(1).text_content() == format_bytes(freed)
    button = folded.get_by_role("button")
    if button.get_attribute("aria-expanded") == "true":
        button.click()
    assert rows.locator("visible=true").count() == 1
    button.focus()
    stage.page.keyboard.press("Enter")
    assert rows.locator("visible=true").count() == 1 + len(scene.regions)
    stage.page.screenshot(path=picture("checkpoint-folded"))


def test_the_source_of_two_runs_has_the_results_of_the_first_difference(open_page):
    scene = recordings.diverging()
    stage = Stage(open_page(), scene)
    stage.show("checkpoint")
    row = next(row for row in scene.diffs if row.status == "changed" and row.forward_line)
    columns = stage.page.locator(".agv-sources > div")
    for column, text in (
        (columns.nth(0), f"{row.forward_op} {row.forward_shape}"),
        (columns.nth(1), f"{row.recompute_op} {row.recompute_shape}"),
    ):
        tags = column.locator(".agv-changed .agv-source-tag").all_text_contents()
        assert text in tags


def test_regions_are_listed_and_summed_by_step(open_page):
    scene = recordings.checkpointed_steps()
    stage = Stage(open_page(), scene)
    stage.show("checkpoint")
    rows = stage.page.locator("[aria-label='Checkpoint regions'] > *").all_text_contents()
    heads = [text for text in rows if text.startswith("step ")]
    assert heads == ["step 0", "step 1", "step 2"]
    assert not any("call " in text for text in rows)
    # The step with the highest peak is open; of equal ones it is the last.
    in_step = [region for region in scene.regions if region.step == 2]
    freed = format_bytes(sum(region.freed_nbytes for region in in_step))
    sentence = stage.page.locator(".agv-difference-more").first.text_content()
    assert sentence.startswith(f"In step 2, {len(in_step)} regions keep")
    assert f"instead of {freed}" in sentence


def test_what_a_group_of_one_step_holds_is_that_at_the_peak_of_the_step(open_page):
    scene = recordings.equal_steps()
    stage = Stage(open_page(), scene)
    step = next(group for group in scene.groups if group.kind == "step")
    group = next(group for group in scene.groups if group.parent == step.index)
    assert group.peak_nbytes == 0  # at the peak of the recording, which is in the last step
    stage.page.locator("[role=treeitem]", has_text=group.label).first.click()
    stage.settle()
    details = stage.page.text_content(".agv-details")
    assert f"held at peak{format_bytes(group.nbytes)}" in details
