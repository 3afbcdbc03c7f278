"""The search field answers questions with a card."""

from __future__ import annotations

import pytest
import recordings
from viewer_page import Stage

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
