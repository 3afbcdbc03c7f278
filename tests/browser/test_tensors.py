"""The tensors view: lifelines, the table of saved tensors, and the memory of modules."""

from __future__ import annotations

import base64
import dataclasses

import pytest
import recordings
from viewer_page import Stage, collect_texts, serve_sources

from autogradviz.render.widget import pack

ROW = 26


def show_tensors(page, scene):
    stage = Stage(page, scene)
    stage.show("tensors")
    if scene.storages:
        stage.page.click(".agv-tensors .agv-choice >> text='all'")
    stage.settle()
    return stage


def cells(stage, column):
    """Return the text of one column of the table of saved tensors."""
    rows = stage.page.locator(".agv-saved-table tbody tr")
    return [row.locator("td").nth(column).text_content() for row in rows.all()]


def lifelines(stage):
    """Return the number of rows of the lifelines."""
    height = stage.page.locator(".agv-lifelines-rows").evaluate("rows => rows.offsetHeight")
    return height / ROW


def nbytes(words):
    number, unit = words.split()
    return float(number) * {"B": 1, "kB": 1e3, "MB": 1e6}[unit]


def rows_of(scene):
    """Return the lifelines in their order: what was written since its save, then the largest."""
    harmed = {"broken", "stale"}
    return sorted(scene.storages, key=lambda each: (each.state not in harmed, -each.nbytes))


def click_row(stage, storage):
    index = rows_of(stage.scene).index(storage)
    box = stage.page.locator(".agv-lifelines-scroll").bounding_box()
    top = stage.page.evaluate("document.querySelector('.agv-lifelines-scroll').scrollTop")
    y = box["y"] + (index + 0.5) * ROW - top
    stage.page.mouse.click(box["x"] + 40, y)


@pytest.mark.parametrize("width", [1400, 900, 420])
def test_names_of_lifelines_are_whole(open_page, width, picture):
    names = ["reciprocal of std", "indices of the embedding", "attention logsumexp", "x"]
    scene = recordings.plain()
    storages = [
        dataclasses.replace(each, name=names[each.index % len(names)]) for each in scene.storages
    ]
    scene = dataclasses.replace(scene, storages=tuple(storages))
    page = open_page(viewport={"width": width, "height": 800})
    collect_texts(page)
    show_tensors(page, scene)
    texts = " ".join(page.evaluate("texts.map((each) => each.text)"))
    assert [name for name in names if name not in texts] == []
    page.screenshot(path=picture(f"tensors-names-{width}"))


def test_name_that_is_longer_than_two_lines_keeps_its_begin_and_its_end(open_page):
    name = "block_of_the_encoder.attention_of_the_heads.projection_of_the_values.weight"
    scene = recordings.plain()
    storages = [dataclasses.replace(each, name=name) for each in scene.storages]
    page = open_page(viewport={"width": 420, "height": 800})
    collect_texts(page)
    show_tensors(page, dataclasses.replace(scene, storages=tuple(storages)))
    cut = {text for text in page.evaluate("texts.map((each) => each.text)") if "…" in text}
    parts = [text.split("…") for text in cut if text.startswith("block_")]
    assert parts
    for begin, end in parts:
        assert name.startswith(begin)
        assert name.endswith(end.split(" ×")[0])
        assert abs(len(begin) - len(end)) <= 1


def test_why_asks_about_the_tensor_that_is_selected(open_page, picture):
    scene = recordings.plain()
    by_node = {}
    for storage in scene.storages:
        by_node.setdefault(storage.node, []).append(storage)
    alike = next(each for each in by_node.values() if len(each) > 1)
    stage = show_tensors(open_page(viewport={"width": 1400, "height": 800}), scene)
    answers = []
    for storage in alike[:2]:
        stage.show("tensors")
        click_row(stage, storage)
        stage.page.click(".agv-panel-story button[aria-label^='Why?']")
        stage.settle()
        answers.append(stage.page.text_content(".agv-trail"))
        assert storage.name in answers[-1]
    assert answers[0] != answers[1]
    stage.page.screenshot(path=picture("tensors-why"))


def test_click_on_a_lifeline_selects_its_storage(open_page, picture):
    scene = recordings.failing()
    broken = next(each for each in scene.storages if each.state == "broken")
    for theme in ("light", "dark"):
        stage = show_tensors(open_page(color_scheme=theme), scene)
        click_row(stage, broken)
        assert stage.selected() == {
            "kind": "tensor",
            "id": broken.storage_id,
            "name": broken.name,
            "module": broken.module,
            "location": f"{broken.filename}:{broken.lineno}",
        }
        story = stage.page.text_content(".agv-panel-story .agv-panel-details")
        assert "Kept alive by" in story
        assert "written by mul_ at v1" in story
        assert "found changed by backward at v1" in story
        stage.page.screenshot(path=picture(f"tensors-{theme}"))


def test_lifelines_are_scrolled_to_the_broken_storage(open_page):
    scene = recordings.failing()
    broken = next(each for each in scene.storages if each.state == "broken")
    stage = show_tensors(open_page(), scene)
    scroller = stage.page.locator(".agv-lifelines-scroll")
    top = scroller.evaluate("(element) => element.scrollTop")
    height = scroller.evaluate("(element) => element.clientHeight")
    assert top <= rows_of(scene).index(broken) * ROW < top + height


def test_arrow_keys_select_the_next_lifeline(open_page):
    scene = recordings.plain()
    stage = show_tensors(open_page(), scene)
    stage.page.focus(".agv-lifelines-scroll")
    stage.page.keyboard.press("ArrowDown")
    stage.page.keyboard.press("ArrowDown")
    assert stage.selected()["id"] == rows_of(scene)[1].storage_id
    stage.page.keyboard.press("ArrowUp")
    assert stage.selected()["id"] == rows_of(scene)[0].storage_id


def test_table_is_sorted_by_any_column(open_page):
    stage = show_tensors(open_page(), recordings.plain())
    stage.page.click(".agv-tensors .agv-choice >> text='table'")
    sizes = [nbytes(words) for words in cells(stage, 6)]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 1
    stage.page.click("button:text('bytes')")
    assert [nbytes(words) for words in cells(stage, 6)] == sorted(sizes)
    stage.page.click("button:text('saved for')")
    names = cells(stage, 1)
    assert names == sorted(names, key=str.lower)
    assert stage.page.get_attribute("th:has-text('saved for')", "aria-sort") == "ascending"


def test_equal_blocks_are_folded_into_one_row(open_page):
    scene = recordings.plain()
    stage = show_tensors(open_page(), scene)
    assert len(cells(stage, 0)) == len(scene.storages) == lifelines(stage)
    stage.page.click(".agv-tensors .agv-choice >> text='fold ×n'")
    assert any("×3" in name for name in cells(stage, 0))
    assert any(module.startswith("blocks.0–2") for module in cells(stage, 2))
    assert len(cells(stage, 0)) == lifelines(stage) < len(scene.storages)


def test_lifelines_have_the_order_of_the_table(open_page):
    stage = show_tensors(open_page(), recordings.plain())
    stage.page.click(".agv-tensors .agv-choice >> text='table'")
    stage.page.click("button:text('saved for')")
    stage.page.click(".agv-tensors .agv-choice >> text='lifelines'")
    stage.page.focus(".agv-lifelines-scroll")
    stage.page.keyboard.press("ArrowDown")
    assert cells(stage, 0)[0].endswith(stage.selected()["name"])


def test_replay_paints_over_the_kept_picture_what_a_new_one_has(open_page):
    scene = recordings.plain()
    stage = show_tensors(open_page(), scene)
    pixels = """() => [...document.querySelectorAll('.agv-pane-tensors canvas')].map(
        (canvas) => canvas.toDataURL())"""
    for share in (0.3, 0.6):
        stage.page.evaluate(
            "(time) => change('state', `view=tensors&time=${time}`)",
            round(scene.summary.end_ns * share),
        )
        stage.settle()
    kept = stage.page.evaluate(pixels)
    stage.resize({"width": 1100, "height": 700})
    assert stage.page.evaluate(pixels) != kept
    stage.resize({"width": 1180, "height": 720})
    assert stage.page.evaluate(pixels) == kept


@pytest.mark.parametrize("grouping", ["module", "kind", "line"])
def test_memory_layers_sum_to_the_curve(open_page, grouping):

    scene = recordings.checkpointed()
    page = open_page()
    serve_sources(page)

    times = [point.time_ns for point in scene.memory]
    sums = page.evaluate(
        """async ([packed, times, grouping]) => {
          const { decodePayload } = await import("http://viewer.test/payload/decode.js");
          const { stackLayers } = await import("http://viewer.test/scene/saved_memory_layers.js");
          const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
          const scene = await decodePayload(new DataView(bytes.buffer));
          const layers = stackLayers({ scene }, times, grouping);
          return times.map((_, at) => layers.reduce((sum, each) => sum + each.values[at], 0));
        }""",
        [base64.b64encode(pack(scene)).decode(), times, grouping],
    )
    assert sums == [point.nbytes for point in scene.memory]


def test_recording_without_saves_has_a_message(open_page):

    scene = dataclasses.replace(recordings.plain(), storages=(), storage_events=())
    stage = show_tensors(open_page(), scene)
    assert "No tensor was saved" in stage.page.text_content(".agv-pane-tensors")
