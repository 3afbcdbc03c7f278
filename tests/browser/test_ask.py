"""The search field answers questions with a card."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import recordings
from viewer_page import Stage

from autogradviz.analysis.formatting import format_bytes

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from training_programs import PROGRAMS

FIELD = ".agv-search input"
CARD = ".agv-answer"


def ask(stage, question):
    stage.page.focus(FIELD)
    stage.page.fill(FIELD, question)
    return stage.page.text_content(f"{CARD} h3")


def test_what_fills_memory_is_the_sentence_of_the_fold_and_a_line(open_page, picture):
    scene = recordings.plain()
    stage = Stage(open_page(), scene)
    sentence = ask(stage, "what fills memory?")
    assert sentence.startswith(scene.folds[0].sentence)
    assert "816 B of it by recordings.py:29" in sentence
    assert stage.page.locator(".agv-answer-row").count() == min(5, len(scene.folds[0].kinds))
    stage.page.screenshot(path=picture("ask"))
    stage.page.keyboard.press("Enter")
    assert not stage.page.is_visible(CARD)
    assert stage.page.get_attribute(".agv", "data-view") == "fold"


def test_what_checkpointing_one_module_saves_is_what_the_api_predicts(open_page):
    trace = PROGRAMS["transformer"]()
    stage = Stage(open_page(), trace._scene)
    for name in ("h.0.mlp", "h.*"):
        predicted = trace.predict_memory(checkpoint=name)
        peaks = [format_bytes(each) for each in (predicted.predicted_peak, predicted.peak)]
        sentence = ask(stage, f"what would checkpointing {name} save?")
        assert f"{peaks[0]} would be held at the peak instead of {peaks[1]}: " in sentence
    assert "frees 512 B of" in ask(stage, "checkpoint h.11.ln_2")
    assert "got a gradient" in ask(stage, "does h.0.ln_1.weight have a gradient?")


def test_a_parameter_without_a_gradient_is_explained(open_page):
    stage = Stage(open_page(), recordings.audited())
    assert "unused.weight got no gradient" in ask(stage, "why no gradient: unused.weight")
    stage.page.click(f"{CARD} >> text=Show")
    assert not stage.page.is_visible(CARD)
    assert "unused.weight" in stage.page.text_content(".agv-trail h3")


def test_an_answer_is_copied_as_markdown(open_page):
    page = open_page()
    stage = Stage(page, recordings.failing())
    page.evaluate("document.execCommand = () => { window.copied = document.activeElement.value; }")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    name = next(each.name for each in stage.scene.storages if each.state == "broken")
    sentence = ask(stage, f"who wrote {name}")
    assert "in place after it was saved for backward" in sentence
    page.click(f"{CARD} [aria-label='Copy Markdown']")
    copied = page.evaluate("window.copied")
    assert copied.startswith(f"**who wrote {name}**")
    assert sentence in copied


def test_an_empty_field_lists_questions_and_arrows_choose_one(open_page):
    stage = Stage(open_page(), recordings.audited())
    page = stage.page
    page.focus(FIELD)
    page.wait_for_selector(".agv-results [role=option]")
    page.keyboard.press("ArrowDown")
    chosen = page.text_content(".agv-results [aria-selected=true] .agv-strong")
    page.keyboard.press("Enter")
    assert page.input_value(FIELD) == chosen
    assert page.is_visible(CARD)
    page.keyboard.press("Escape")
    assert not page.is_visible(CARD)


@pytest.mark.one_in(3, reason="searches each width for all rules", in_ci=1)
@pytest.mark.parametrize("width", [360, 1180])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_cards_fit_and_violate_no_rule_of_axe(open_page, axe, width, scheme):
    page = open_page(viewport={"width": width, "height": 600}, color_scheme=scheme)
    stage = Stage(page, recordings.audited())
    page.evaluate(axe)
    for question in ("slowest line", "what fills memory", "why no gradient"):
        ask(stage, question)
        box = page.locator(".agv-results").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        found = page.evaluate("axe.run(document.querySelector('.agv'))")["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
