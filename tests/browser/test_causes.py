"""The audit, the answers to "why?", and the marks on source lines."""

from __future__ import annotations

from dataclasses import replace

import pytest
import recordings
from test_accessibility import HOST, VIOLATIONS, overflowing
from viewer_page import Stage

from autogradviz.render.widget import TraceWidget

pytestmark = pytest.mark.one_in(3, reason="opens a page for each answer", in_ci=1)

CAUSE = "scale = torch.sigmoid(self.gate(features)).detach()"
SELECTED = "[role=option][aria-selected=true]"


def stage_of(open_page, scene=None, **options):
    options.setdefault("viewport", {"width": 1440, "height": 820})
    # The audit lists what no finding says.
    scene = replace(recordings.audited(), findings=()) if scene is None else scene
    stage = Stage(open_page(**options), scene)
    stage.page.keyboard.press("Escape")
    return stage


def why(stage, target):
    """Ask why about something in the details."""
    stage.page.locator(f".agv-details button[aria-label='Why? {target}']").first.click()
    stage.settle()


def steps(stage):
    """Return the statements of the answer."""
    return stage.page.locator(".agv-trail [role=option] code").all_text_contents()


def choose(stage, mechanism):
    """Choose the first entry of the audit of a mechanism."""
    stage.show("findings")
    rows = stage.page.locator(f"[aria-label='Other lines'] [role=option]:has([title={mechanism}])")
    row = (rows.filter(has_text=CAUSE) if mechanism == "cut" else rows).first
    row.click()
    stage.settle()
    return row


def test_weaker_lines_of_the_audit_are_listed_on_request(open_page):
    scene = recordings.audited()
    stage = Stage(open_page(), replace(scene, findings=scene.findings[-1:]))
    stage.show("findings")
    rows = stage.page.locator("[aria-label='Other lines'] [role=option]")
    more = stage.page.locator(".agv-audit-more button")
    rest = int(more.text_content().split()[0])
    assert rows.count() == 2
    assert rest > 0
    more.click()
    assert rows.count() == 2 + rest
    assert more.count() == 0


def test_audit_lists_each_line_with_mechanism_effect_and_explanation(open_page):
    stage = stage_of(open_page)
    row = choose(stage, "cut")
    entries = {
        stage.scene.cause_steps[each.steps[0]].line: each for each in stage.scene.audit_entries
    }
    entry = entries[CAUSE]
    step = stage.scene.cause_steps[entry.steps[0]]
    assert CAUSE in row.text_content()
    assert step.text in row.text_content()
    card = stage.page.locator(".agv-entry")
    assert card.locator("h3").text_content() == step.text
    assert CAUSE in card.locator(".agv-selected-line").text_content()
    for line in entry.explanation.splitlines():
        assert line.strip() in card.text_content()


def test_arrow_keys_move_through_the_audit(open_page):
    stage = stage_of(open_page)
    stage.show("findings")
    stage.page.focus("[aria-label='Other lines']")
    rows = stage.page.locator("[aria-label='Other lines'] [role=option]")
    assert rows.count() > 1
    rows.first.click()
    for at in range(rows.count()):
        if at:
            stage.page.keyboard.press("ArrowDown")
        assert rows.nth(at).get_attribute("aria-selected") == "true"


def test_the_audit_repeats_no_finding(open_page):
    scene = recordings.failing()
    stage = Stage(open_page(), scene)
    stage.show("findings")
    texts = [scene.cause_steps[each.steps[0]].text for each in scene.audit_entries]
    titles = [each.title for each in scene.findings]
    assert set(texts) & set(titles)
    lists = stage.page.inner_text(".agv-pane-findings .agv-side")
    for text in titles:
        assert lists.count(text) == 1
    # Other words for the same line and the same change are a repetition too.
    stage = Stage(open_page(), recordings.audited())
    stage.show("findings")
    assert stage.page.locator("[aria-label='Other lines'] [role=option]").count() == 0
    assert len(stage.scene.audit_entries) == len(stage.scene.findings) == 4


def test_a_finding_begins_with_the_change(open_page):
    stage = Stage(open_page(), recordings.failing())
    stage.show("findings")
    heads = stage.page.locator(".agv-finding h4").all_text_contents()
    assert heads == ["What to change", "Where", "Why"]


def test_chosen_entry_opens_its_source_line(open_page):
    stage = stage_of(open_page)
    choose(stage, "cut")
    stage.page.click(".agv-entry >> text=Open the source line")
    stage.settle()
    assert stage.page.is_visible(".agv-pane-source")
    assert CAUSE in stage.page.locator(".agv-chosen-line").text_content()


def test_chosen_entry_is_marked_on_the_timeline(open_page):
    stage = stage_of(open_page)
    stage.show("timeline")
    stage.settle()
    pixels = "document.querySelector('.agv-timeline canvas').toDataURL()"
    before = stage.page.evaluate(pixels)
    choose(stage, "cut")
    stage.page.click(".agv-entry >> text=Show on the timeline")
    stage.settle()
    assert stage.page.is_visible(".agv-timeline")
    assert stage.page.evaluate(pixels) != before


def test_parameter_without_gradient_is_listed_and_answered(open_page):
    stage = stage_of(open_page)
    section = stage.page.locator("section", has_text="Parameters to look at").last
    listed = section.locator("code").all_text_contents()
    assert listed == ["gate.weight", "gate.bias", "unused.weight", "unused.bias"]
    why(stage, "gate.weight")
    assert steps(stage)[-1] == CAUSE
    assert "no gradient" in stage.page.text_content(".agv-trail")
    assert stage.page.evaluate("document.activeElement.role") == "listbox"


def test_arrow_keys_step_through_an_answer_and_select_its_nodes(open_page):
    stage = stage_of(open_page)
    index = next(b.node for b in stage.scene.parameter_badges if b.name == "encoder.weight")
    stage.page.evaluate(
        "id => change('selected', {kind: 'node', id})", stage.scene.nodes[index].node_id
    )
    why(stage, "encoder.weight")
    answer = next(a for a in stage.scene.answers if a.subject == "parameter encoder.weight")
    for step in answer.steps:
        row = stage.scene.cause_steps[step]
        selected = stage.page.locator(f".agv-trail {SELECTED}")
        assert row.text in selected.text_content()
        if row.nodes:
            assert stage.selected()["id"] == stage.scene.nodes[row.nodes[0]].node_id
        stage.page.keyboard.press("ArrowDown")
        stage.settle()
    assert stage.page.is_visible(".agv-path-label")


def test_steps_are_numbered_on_the_graph(open_page):
    stage = stage_of(open_page)
    index = next(b.node for b in stage.scene.parameter_badges if b.name == "encoder.weight")
    stage.page.evaluate(
        "id => change('selected', {kind: 'node', id})", stage.scene.nodes[index].node_id
    )
    canvas = "document.querySelector('.agv-canvas').toDataURL()"
    before = stage.page.evaluate(canvas)
    why(stage, "encoder.weight")
    assert stage.page.evaluate(canvas) != before
    stage.page.keyboard.press("Escape")
    stage.settle()
    assert not stage.page.is_visible(".agv-trail")
    assert not stage.page.is_visible(".agv-path-label")


def test_finding_and_exception_of_a_failed_step_are_answered(open_page):
    stage = stage_of(open_page, recordings.failing())
    [finding] = stage.scene.findings
    stage.show("findings")
    stage.page.click(f".agv-finding button[aria-label='Why? {finding.title}']")
    stage.settle()
    assert stage.page.is_visible(".agv-canvas")
    assert finding.culprit_text.strip() in steps(stage)
    assert stage.page.text_content(".agv-trail h3") == finding.title
    first = stage.page.locator(".agv-trail .agv-cause").first.text_content()
    assert finding.culprit_text.strip() in first
    stage.page.keyboard.press("Escape")
    stage.page.keyboard.press("Escape")
    stage.page.keyboard.press("Escape")
    why(stage, stage.scene.summary.error_type)
    assert "raised" in stage.page.text_content(".agv-trail")


def test_report_says_which_call_answers_what_it_does_not_hold(open_page):
    stage = stage_of(open_page)
    node = stage.scene.nodes[0]
    stage.page.evaluate("id => change('selected', {kind: 'node', id})", node.node_id)
    why(stage, node.name)
    assert f"In Python, trace.why({node.node_id}) does." in stage.page.text_content(".agv-trail")


def test_widget_asks_python_for_other_answers(open_page):
    trace = recordings.audited_trace()
    stage = stage_of(open_page, trace._viewer_scene)
    widget = TraceWidget(trace._viewer_scene, answer=trace._answer)
    stage.page.evaluate(
        "() => { unmount(); traits._answer = {};"
        " unmount = autogradviz.default.render({ model, el: document.body }); }"
    )
    stage.show("graph")
    stage.page.wait_for_selector(".agv-canvas[data-camera]")
    node = stage.scene.nodes[0]
    stage.page.evaluate("id => change('selected', {kind: 'node', id})", node.node_id)
    why(stage, node.name)
    assert "Asking Python" in stage.page.text_content(".agv-trail")
    widget._question = stage.page.evaluate("traits._question")
    stage.page.evaluate("answer => change('_answer', answer)", widget._answer)
    stage.settle()
    text = stage.page.text_content(".agv-trail")
    assert f"{node.name} #{node.node_id} ran 1 time" in text
    assert "Asking Python" not in text
    stage.page.keyboard.press("Escape")
    why(stage, node.name)  # the model would not see the same question as a change
    assert stage.page.text_content(".agv-trail") == text


def test_source_lines_have_marks_with_a_legend_and_a_filter(open_page):
    stage = stage_of(open_page)
    stage.show("source")
    line = stage.page.locator(".agv-source-line", has_text=CAUSE)
    mark = line.locator(".agv-mark")
    assert mark.get_attribute("aria-label").startswith("no gradient: 2 parameters")
    switch = stage.page.locator(".agv-switch", has_text="no gradient 1")
    assert "without its gradient" in switch.get_attribute("title")
    switch.click()
    assert switch.get_attribute("aria-pressed") == "false"
    assert not mark.is_visible()
    switch.click()
    stage.page.click("text=Only marked lines")
    shown = stage.page.locator(".agv-source-line[data-line]:visible")
    marked = {
        (step.filename, step.lineno)
        for step in (stage.scene.cause_steps[e.steps[0]] for e in stage.scene.audit_entries)
        if step.lineno
    }
    assert shown.count() == len(marked)
    mark.click()
    stage.settle()
    assert "2 parameters" in stage.page.text_content(".agv-entry h3")


def test_scene_without_an_audit_says_so(open_page):
    stage = Stage(open_page(), recordings.large())
    stage.show("findings")
    assert stage.page.is_visible("text=This file has no audit.")
    stage.show("source")
    assert stage.page.locator(".agv-switches").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 1000, 360])
def test_answers_and_audit_fit_and_violate_no_rule_of_axe(open_page, axe, picture, scheme, width):
    viewport = {"width": width, "height": 760}
    stage = stage_of(open_page, color_scheme=scheme, viewport=viewport)
    stage.page.evaluate(axe)

    def check(name):
        stage.settle()
        found = stage.page.evaluate(VIOLATIONS)
        assert [each for each in found if each.split(":")[0] not in HOST] == [], name
        assert overflowing(stage.page) == [], name
        stage.page.screenshot(path=picture(f"{name}-{width}-{scheme}"))

    button = ".agv-details button[aria-label='Why? encoder.weight']"
    index = next(b.node for b in stage.scene.parameter_badges if b.name == "encoder.weight")
    stage.page.evaluate(
        "id => change('selected', {kind: 'node', id})", stage.scene.nodes[index].node_id
    )
    stage.page.locator(button).first.click()
    check("why")
    choose(stage, "cut")
    check("audit")
    stage.show("source")
    check("marks")


def test_the_source_marks_the_one_culprit_and_the_one_victim_of_a_finding(open_page):
    scene = recordings.failing()
    first = scene.findings[0]
    stage = Stage(open_page(viewport={"width": 1280, "height": 800}), scene)
    stage.show("source")
    roles = stage.page.locator(".agv-pane-source .agv-source-line > code > .agv-source-tag")
    lines = {
        role.text_content(): int(
            role.locator("xpath=../..").locator(".agv-source-number").text_content()
        )
        for role in roles.all()
    }
    assert roles.count() == len(lines)
    assert lines == {"culprit": first.culprit_line, "victim": first.victim_line}


@pytest.mark.parametrize("width", [1280, 900, 420])
@pytest.mark.parametrize("view", ["findings", "source"])
def test_a_blamed_line_starts_at_its_number_and_breaks_between_words(open_page, view, width):
    scene = recordings.diverging()
    stage = Stage(open_page(viewport={"width": width, "height": 800}), scene)
    stage.show(view)
    stage.settle()
    line = stage.page.locator(f".agv-pane-{view} .agv-culprit").first
    number, first = line.locator(".agv-source-number"), line.locator(".agv-word").first
    assert abs(number.bounding_box()["y"] - first.bounding_box()["y"]) < 9
    words = line.locator(".agv-word .agv-word").all()
    assert all(word.bounding_box()["height"] < 24 for word in words)
    assert line.locator("code").bounding_box()["width"] > 260


def test_marks_of_the_audit_have_the_color_of_text(open_page):
    stage = Stage(open_page(), recordings.audited())
    stage.show("source")
    color = "(element) => getComputedStyle(element).color"
    marks = stage.page.locator(".agv-mark").evaluate_all(f"all => all.map({color})")
    switches = stage.page.locator(".agv-switch[aria-pressed=false]")
    assert set(marks) == {switches.first.evaluate(color)}
