"""The fold: first view of a healthy step with tensors to compare."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import recordings
from viewer_page import Stage

from autogradviz.analysis.formatting import format_bytes

LINES_WITH_BYTES = ".agv-heat-row:has(.agv-heat-bar > span)"


def held_at(scene, time_ns):
    """Return the bytes that saved tensors hold at a time."""
    return sum(
        storage.nbytes
        for storage in scene.counted_storages
        if any(
            start <= time_ns and (end < 0 or end > time_ns)
            for start, end in zip(storage.holds[::2], storage.holds[1::2], strict=True)
        )
    )


def bytes_of(text):
    """Return the bytes of a text like "1.2 kB"."""
    value, unit = text.split()
    return float(value) * {"B": 1, "kB": 1e3, "MB": 1e6}[unit]


def test_a_healthy_step_opens_on_the_fold_and_a_failing_one_on_its_finding(open_page):
    stage = Stage(open_page(), replace(recordings.plain(), findings=()), view="")
    assert stage.page.is_visible(".agv-fold-canvas")
    assert stage.page.get_attribute(".agv-rail [aria-current]", "data-view") == "fold"
    [fold] = stage.scene.folds
    title = stage.page.text_content(".agv-fold-answer-title").replace("\xa0", " ")
    assert fold.sentence.startswith(title)
    stage = Stage(open_page(), recordings.failing(), view="")
    assert stage.page.is_visible(".agv-canvas[data-camera]")


def test_the_fold_begins_with_the_first_finding_which_opens_it(open_page):
    without = replace(recordings.checkpointed(), findings=())
    stage = Stage(open_page(), without, view="fold")
    assert stage.page.locator(".agv-fold-answer .agv-card").count() == 0
    stage = Stage(open_page(), recordings.running_sum(), view="fold")
    first = stage.scene.findings[0]
    card = stage.page.locator(".agv-fold-answer > :first-child .agv-card")
    assert card.locator("h3").text_content() == first.title
    assert first.culprit_text.strip() in card.text_content()
    card.get_by_role("button", name="Show this finding").click()
    assert stage.page.get_attribute(".agv-rail [aria-current]", "data-view") == "findings"
    assert first.title in stage.page.text_content(".agv-finding")


@pytest.mark.parametrize("size", [(1280, 800), (420, 800)])
@pytest.mark.parametrize("mechanism", ["cut", "value", "mix", "change"])
def test_a_step_that_ran_with_a_wrong_gradient_opens_on_its_line(open_page, size, mechanism):
    """The title, the line and the change are in sight before anything is pressed."""
    scene = recordings.audited()
    cut = {(each.filename, each.lineno) for each in scene.detaches}
    [first] = [f for f in scene.findings if (f.culprit_file, f.culprit_line) in cut]
    scene = replace(scene, findings=(replace(first, mechanism=mechanism),))
    width, height = size
    page = Stage(open_page(viewport={"width": width, "height": height}), scene, view="").page
    assert page.get_attribute(".agv-rail [aria-current]", "data-view") == "findings"
    card = page.locator(".agv-finding")
    assert card.locator("h3").text_content() == first.title
    bottom = page.locator(".agv-scrubber").bounding_box()["y"]
    for part in ("h3", ".agv-culprit code", ":is(.agv-fix, .agv-fix-text)"):
        box = card.locator(part).first.bounding_box()
        assert box["y"] + box["height"] <= bottom, part
    words = card.locator(".agv-culprit code > .agv-word").all_text_contents()
    assert first.culprit_text.strip() == "".join(words).strip()


@pytest.mark.parametrize("mechanism", ["cost", "keep"])
def test_a_finding_about_memory_or_time_opens_on_the_fold(open_page, mechanism):
    scene = recordings.running_sum()
    first = replace(scene.findings[0], mechanism=mechanism, nodes=())
    page = Stage(open_page(), replace(scene, findings=(first,)), view="").page
    assert page.get_attribute(".agv-rail [aria-current]", "data-view") == "fold"


def test_the_graph_shows_the_line_at_which_a_gradient_ends(open_page):
    scene = recordings.audited()
    cut = {(each.filename, each.lineno) for each in scene.detaches}
    [first] = [f for f in scene.findings if (f.culprit_file, f.culprit_line) in cut]
    scene = replace(scene, findings=(first,))
    page = open_page()
    page.evaluate(
        "() => { window.texts = []; const { fillText } = CanvasRenderingContext2D.prototype;"
        " CanvasRenderingContext2D.prototype.fillText = function (text, ...rest)"
        " { texts.push([text, ...rest]); fillText.call(this, text, ...rest); }; }"
    )
    stage = Stage(page, scene, view="")
    stage.show("graph")
    page.wait_for_selector(".agv-pane-graph .agv-canvas[data-camera]")
    page.evaluate("texts.length = 0")
    stage.resize({"width": 1181, "height": 720})
    cards = page.locator(".agv-details-recording > *")
    assert first.title in cards.nth(1).text_content()
    assert "No problems found" not in page.text_content(".agv-details-recording")
    texts = page.evaluate("texts")
    assert f"detach, line {first.culprit_line}" in {text for text, *_ in texts}
    # One box at the end of all lines, on the left of all boxes.
    [at] = {(x, y) for text, x, y, *_ in texts if text == "no gradient"}
    boxes = page.evaluate("document.querySelector('.agv-pane-graph .agv-canvas').drawn")
    assert at[0] < -120
    assert min(box["x"] for box in boxes) >= 0
    assert "selected" not in page.locator(".agv-legend-line").inner_text()


def test_a_small_healthy_step_opens_on_the_graph_which_says_that_nothing_was_found(open_page):
    scene = replace(recordings.adversarial(), findings=())
    stage = Stage(open_page(), scene, view="")
    assert stage.page.get_attribute(".agv-rail [aria-current]", "data-view") == "graph"
    facts = stage.page.locator(".agv-details-recording .agv-fact")
    assert facts.all_text_contents() == ["No problems found", *(fact.text for fact in scene.facts)]


@pytest.mark.one_in(3, reason="searches each picture for all rules", in_ci=1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["plain", "checkpointed", "running_sum", "adversarial"])
def test_the_fold_violates_no_rule_of_axe(open_page, axe, picture, scheme, name):
    page = open_page(color_scheme=scheme, viewport={"width": 1440, "height": 900})
    stage = Stage(page, getattr(recordings, name)(), view="fold")
    page.screenshot(path=picture(f"fold-{name}-{scheme}"))
    page.evaluate(axe)
    found = page.evaluate("axe.run(document.querySelector('.agv'))")["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
    assert stage.page.locator(".agv-fold-kind").count() == len(
        max(stage.scene.folds, key=lambda fold: fold.peak_nbytes).kinds
    )


def test_only_blocks_that_were_recomputed_are_named_so(open_page):
    scene = recordings.checkpointed()
    again = [each for each in scene.ribbons if each.recomputed]
    blocks = sorted({each.block for each in again})
    assert len(blocks) > 1
    kept = tuple(
        replace(each, recomputed=each.recomputed and each.block == blocks[-1])
        for each in scene.ribbons
    )
    page = open_page(viewport={"width": 1440, "height": 900})
    page.evaluate(
        "() => { window.texts = []; const { fillText } = CanvasRenderingContext2D.prototype;"
        " CanvasRenderingContext2D.prototype.fillText = function (text, ...rest)"
        " { texts.push(text); fillText.call(this, text, ...rest); }; }"
    )
    Stage(page, replace(scene, ribbons=kept), view="fold")
    texts = page.evaluate("texts")
    pills = {text for text in texts if text.endswith(" recomputed")}
    assert pills, texts
    assert {text for text in pills if not text.startswith(f"{blocks[-1]} ")} == set()


def test_kinds_and_lines_have_the_bytes_of_the_recording(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(viewport={"width": 1440, "height": 900}), scene, view="fold")
    [fold] = scene.folds
    titles = {kind.name: kind.title for kind in scene.saved_kinds}
    labels = stage.page.locator(".agv-fold-kind > .agv-grow").all_text_contents()
    assert labels == [titles[kind] for kind in fold.kinds]
    lines = {s.lineno for s in scene.counted_storages if s.lineno}
    assert stage.page.locator(LINES_WITH_BYTES).count() == len(lines)
    stage.page.locator(LINES_WITH_BYTES).first.click()
    assert stage.page.is_visible(".agv-pane-source")


def test_ribbons_are_reached_by_keys_and_select_their_tensors(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(), scene, view="fold")
    stage.page.focus(".agv-fold-canvas")
    stage.page.keyboard.press("ArrowRight")
    first = scene.ribbons[0]
    assert first.label in stage.page.text_content(".agv-fold [aria-live]")
    stage.page.keyboard.press("Enter")
    storage = scene.counted_storages[first.members[0]]
    assert stage.selected() == {**stage.selected(), "kind": "tensor", "id": storage.storage_id}
    stage.page.click("text=Show its lifeline")
    assert stage.page.is_visible(".agv-pane-tensors")


def test_a_ribbon_under_the_pointer_has_a_tooltip(open_page):
    scene = recordings.plain()
    stage = Stage(open_page(), scene, view="fold")
    box = stage.page.locator(".agv-fold-canvas").bounding_box()
    ribbon = max(scene.ribbons, key=lambda each: each.nbytes)
    middle = sum(ribbon.waist) / 2 / 100_000
    x = box["x"] + 14 + (box["width"] - 28) * middle
    stage.page.mouse.move(x, box["y"] + box["height"] / 2)
    assert ribbon.label in stage.page.text_content(".agv-fold-canvas .agv-tooltip")


def test_what_is_held_follows_the_time(open_page, picture):
    scene = recordings.plain()
    stage = Stage(open_page(), scene, view="fold")
    [fold] = scene.folds
    held = """(time) => {
        const written = [];
        const write = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
          written.push(text);
          return write.call(this, text, ...rest);
        };
        change("state", `view=fold&time=${time}`);
        CanvasRenderingContext2D.prototype.fillText = write;
        return written.filter((text) => text.endsWith("held now"));
    }"""
    stage.page.evaluate("traits.state = ''")
    for time_ns in (fold.start_ns + 1, fold.turn_ns, (fold.turn_ns + fold.end_ns) // 2):
        nbytes = held_at(scene, time_ns)
        text = f"{nbytes} B" if nbytes < 1000 else f"{nbytes / 1000:.1f} kB"
        assert stage.page.evaluate(held, time_ns)[-1:] == [f"{text} held now"]
    stage.page.screenshot(path=picture("fold-replayed"))


def test_the_folds_of_several_backwards_are_chosen(open_page):
    scene = recordings.running_sum()
    stage = Stage(open_page(viewport={"width": 1440, "height": 900}), scene, view="fold")
    entries = stage.page.locator(".agv-fold-entry")
    assert entries.count() == len(scene.folds) == 6
    entries.nth(3).click()
    assert entries.nth(3).get_attribute("aria-pressed") == "true"
    title = stage.page.text_content(".agv-fold-answer-title").replace("\xa0", " ")
    assert scene.folds[3].sentence.startswith(title)


def test_what_holds_for_one_backward_is_apart_from_the_recording(open_page):
    stage = Stage(open_page(), recordings.running_sum(), view="fold")
    heads = stage.page.locator(".agv-fold-answer h4").all_text_contents()
    assert heads[1] == "Whole recording, 6 steps"  # the picture has the times of its edges
    stage = Stage(open_page(), recordings.plain(), view="fold")
    heads = stage.page.locator(".agv-fold-answer h4").all_text_contents()
    assert "This step" in heads
    assert not {"This backward", "Whole recording"} & set(heads)


def row_of_tensors(storage):
    """Return the key of the row of a storage in the view of tensors."""
    owner = storage.slots[0].partition(".")[0] if storage.slots else ""
    numbered = [re.sub(r"\d+", "#", text) for text in (storage.name, storage.module)]
    place = storage.filename, storage.lineno
    return *numbered, owner, storage.shape, storage.state, *place, not storage.holds


@pytest.mark.parametrize("name", ["plain", "checkpointed", "running_sum"])
def test_the_tensors_that_keep_most_are_those_held_at_the_peak(open_page, name):
    scene = getattr(recordings, name)()
    stage = Stage(open_page(), scene, view="fold")
    fold = max(scene.folds, key=lambda fold: fold.peak_nbytes)
    rows = {each.storage_id: each for each in scene.storages}
    sums = {}
    for ribbon in scene.ribbons:
        for storage in (scene.counted_storages[at] for at in ribbon.members):
            spans = zip(storage.holds[::2], storage.holds[1::2], strict=True)
            alive = any(a <= fold.peak_ns and (b < 0 or b > fold.peak_ns) for a, b in spans)
            if ribbon.fold == fold.index and alive:
                key = row_of_tensors(rows[storage.storage_id])
                sums[key] = sums.get(key, 0) + storage.nbytes
    assert sum(sums.values()) == fold.peak_nbytes
    shown = stage.page.locator(".agv-fold-answer .agv-node-link .agv-end").all_text_contents()
    assert shown == [format_bytes(each) for each in sorted(sums.values(), reverse=True)[:5]]


def test_lines_next_to_a_fold_have_its_bytes(open_page):
    scene = recordings.running_sum()
    stage = Stage(open_page(viewport={"width": 1440, "height": 900}), scene, view="fold")
    for fold in scene.folds:
        stage.page.locator(".agv-fold-entry").nth(fold.index).click()
        sums = {}
        for ribbon in scene.ribbons:
            for at in ribbon.members if ribbon.fold == fold.index else ():
                storage = scene.counted_storages[at]
                spans = zip(storage.holds[::2], storage.holds[1::2], strict=True)
                alive = any(a <= fold.peak_ns and (b < 0 or b > fold.peak_ns) for a, b in spans)
                sums.setdefault(storage.lineno, 0)
                sums[storage.lineno] += storage.nbytes * alive
        rows = stage.page.locator(".agv-heat-row:is(button):not(.agv-heat-culprit)")
        numbers = rows.locator(".agv-heat-number").all_text_contents()
        sizes = rows.locator(".agv-heat-bytes").all_text_contents()
        shown = {int(n): size for n, size in zip(numbers, sizes, strict=True)}
        assert shown == {line: format_bytes(size) for line, size in sums.items()}
        assert sum(sums.values()) == fold.peak_nbytes


def test_the_lines_of_a_finding_are_next_to_the_fold(open_page):
    scene = recordings.failing()
    page = open_page(viewport={"width": 1440, "height": 900})
    Stage(page, scene, view="fold")
    [finding, *_] = scene.findings
    for tag in ("culprit", "victim"):
        numbers = page.locator(f".agv-heat-{tag} .agv-heat-number").all_text_contents()
        assert str(getattr(finding, f"{tag}_line")) in numbers


@pytest.mark.parametrize("width", [420, 1000, 1440])
def test_the_fold_needs_no_scrolling_sideways(open_page, picture, width):
    page = open_page(viewport={"width": width, "height": 800})
    Stage(page, recordings.plain(), view="fold")
    page.screenshot(path=picture(f"fold-{width}"))
    assert page.evaluate("document.querySelector('.agv-fold').scrollWidth") <= width
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_low_viewer_shows_the_fold_alone_until_it_is_opened(open_page, picture):
    page = open_page(viewport={"width": 900, "height": 700})
    Stage(page, recordings.plain(), view="fold")
    page.evaluate("change('height', 260)")
    assert page.locator(".agv").bounding_box()["height"] == 260
    for hidden in (".agv-rail", ".agv-top-bar", ".agv-scrubber", ".agv-fold-answer", ".agv-heat"):
        assert not page.is_visible(hidden)
    assert page.is_visible(".agv-fold-title")
    page.screenshot(path=picture("fold-alone"))
    page.click(".agv-fold-title button")
    assert page.evaluate("traits.height") == 620
    assert page.is_visible(".agv-rail")


def test_the_budget_shows_plan_line_and_cost(open_page, axe, picture):
    scene = recordings.plain()
    assert scene.budget_plans
    stage = Stage(open_page(viewport={"width": 1440, "height": 900}), scene, view="fold")
    page = stage.page
    for at, plan in enumerate(scene.budget_plans, 1):
        page.locator(".agv-budget-range").fill(str(len(scene.budget_plans) - at))
        title = page.text_content(".agv-fold-answer-title").replace("\xa0", " ")
        assert title.startswith(f"{format_bytes(plan.peak_nbytes)} predicted at the peak")
        kinds = page.locator(".agv-fold-kind b").all_text_contents()
        assert sum(map(bytes_of, kinds)) == pytest.approx(plan.peak_nbytes, rel=0.05)
        if not plan.lineno:
            assert page.text_content(".agv-patch") == plan.after
        else:
            assert page.text_content(".agv-patch-old") == f"- {plan.before.strip()}"
            assert page.text_content(".agv-patch-new") == f"+ {plan.after.strip()}"
    page.screenshot(path=picture("fold-budget"))
    page.evaluate(axe)
    found = page.evaluate("axe.run(document.querySelector('.agv'))")["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []


def test_the_budget_is_that_of_the_step_on_display(open_page, picture):
    scene = recordings.growing_steps()
    page = Stage(open_page(viewport={"width": 1440, "height": 900}), scene, view="fold").page
    for step, fold in enumerate(scene.folds):
        page.select_option(".agv-step-menu select", str(step))
        plans = [plan for plan in scene.budget_plans if plan.step == step]
        assert plans
        budget = page.locator("section:has(> .agv-budget-range)")
        peak = format_bytes(fold.peak_nbytes)
        assert f"of step {step}" in budget.text_content()
        assert f"{peak} as it is; {len(plans)} plan" in budget.text_content()
        assert page.get_attribute(".agv-budget-range", "max") == str(len(plans))
        assert page.input_value(".agv-budget-range") == str(len(plans))
        for at, plan in enumerate(plans, 1):
            page.locator(".agv-budget-range").fill(str(len(plans) - at))
            lines = page.locator(".agv-heat-row:is(button) .agv-heat-bytes").all_text_contents()
            assert sum(map(bytes_of, lines)) == pytest.approx(plan.peak_nbytes, rel=0.05)
            entry = page.locator(".agv-fold-entry").nth(step)
            assert f"{format_bytes(plan.peak_nbytes)} predicted" in entry.text_content()
            title = page.text_content(".agv-fold-answer-title").replace("\xa0", " ")
            predicted = format_bytes(plan.peak_nbytes)
            assert title.startswith(f"{predicted} predicted at the peak, {peak} as it is")
            kinds = page.locator(".agv-fold-kind b").all_text_contents()
            assert sum(map(bytes_of, kinds)) == pytest.approx(plan.peak_nbytes, rel=0.05)
            assert "more in a step" in budget.text_content()
    page.screenshot(path=picture("fold-budget-of-step"))


def test_the_budget_of_a_step_with_several_backwards_is_that_of_all_of_them(open_page, picture):
    scene = recordings.two_losses()
    assert [fold.step for fold in scene.folds] == [0, 0]
    page = Stage(open_page(viewport={"width": 1440, "height": 900}), scene, view="fold").page
    peak = format_bytes(max(each.nbytes for each in scene.memory))
    last = scene.budget_plans[-1].peak_nbytes
    for fold in scene.folds:
        page.click(f".agv-fold-entries button:nth-child({fold.index + 1})")
        assert f"{peak} as it is" in page.text_content(".agv-fold-answer")
        page.locator(".agv-budget-range").fill("0")
        title = page.text_content(".agv-fold-answer-title").replace("\xa0", " ")
        assert title.startswith(f"{format_bytes(last)} predicted at the peak, {peak} as it is")
        kinds = page.locator(".agv-fold-kind b").all_text_contents()
        assert sum(map(bytes_of, kinds)) == pytest.approx(last, rel=0.02)
        page.screenshot(path=picture(f"fold-budget-of-backward-{fold.index}"))
        # The plan is of the step: it stays while its other backward is shown.
        other = 2 - fold.index
        page.click(f".agv-fold-entries button:nth-child({other})")
        assert page.input_value(".agv-budget-range") == "0"
        page.locator(".agv-budget-range").fill(str(len(scene.budget_plans)))


def test_the_memory_view_predicts_for_the_step_on_display(open_page):
    scene = recordings.growing_steps()
    page = Stage(open_page(viewport={"width": 1440, "height": 900}), scene, view="memory").page
    page.locator(".agv-memory .agv-choice button", has_text="checkpoint").first.click()
    for step, fold in enumerate(scene.folds):
        page.select_option(".agv-step-menu select", str(step))
        text = page.text_content(".agv-sentence").replace("\xa0", " ")
        assert f": {format_bytes(fold.peak_nbytes)} → " in text


TEXTS = """() => {
  window.texts = [];
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    if (this.canvas.matches(".agv-fold-canvas canvas")) texts.push(text);
    fillText.call(this, text, ...rest);
  };
}"""


@pytest.mark.parametrize("width", [1440, 1100])
def test_each_block_of_a_run_is_named_in_the_same_way(open_page, width):
    stage = Stage(
        open_page(viewport={"width": width, "height": 900}), recordings.plain(), view="fold"
    )
    stage.page.evaluate(TEXTS)
    stage.resize({"width": width + 20, "height": 900})
    texts = stage.page.evaluate("texts")
    pills = [at for at, text in enumerate(texts) if re.search(r"\d k?B\b", text)]
    assert pills, texts
    for at in pills:  # the bytes are behind the name or, in a narrow block, below it
        assert re.match(r"[a-z]", texts[at]) or re.match(r"[a-z]", texts[at - 1])


class Loop(recordings.nn.Module):
    """Reads a sequence with a cell and projects each state."""

    def __init__(self):
        super().__init__()
        self.embedding = recordings.nn.Embedding(9, 8)
        self.cell = recordings.nn.GRUCell(8, 8)
        self.projection = recordings.nn.Linear(8, 8)

    def forward(self, indices):
        state, states = recordings.torch.zeros(4, 8), []
        for index in indices:
            state = self.cell(self.embedding(index), state)
            states.append(self.projection(state).tanh())
        return recordings.torch.stack(states)


@recordings.reproducible
def loop():
    model = Loop()
    indices = recordings.torch.randint(0, 9, (20, 4))
    return recordings.record(model, lambda: model(indices).sum().backward())


def test_blocks_of_a_loop_have_one_short_name_with_their_number(open_page):
    stage = Stage(open_page(viewport={"width": 1280, "height": 900}), loop(), view="fold")
    stage.page.evaluate(TEXTS)
    stage.resize({"width": 1300, "height": 900})
    [label] = [text for text in stage.page.evaluate("texts") if " in all" in text]
    assert re.fullmatch(r"cell ×20 \+\d · [\d.]+ k?B saved in all", label)


def test_patch_of_a_chosen_budget_is_above_the_footer(open_page, picture):
    scene = recordings.plain()
    page = Stage(open_page(viewport={"width": 900, "height": 700}), scene, view="fold").page
    page.locator(".agv-budget-range").fill(str(len(scene.budget_plans) - 2))
    page.wait_for_selector(".agv-patch-new")
    patch = page.locator(".agv-copy").last.bounding_box()
    assert patch["y"] + patch["height"] <= page.locator(".agv-scrubber").bounding_box()["y"]
    page.screenshot(path=picture("fold-patch-light"))


def test_the_button_of_the_fold_on_display_is_in_view(open_page):
    stage = Stage(
        open_page(viewport={"width": 420, "height": 900}), recordings.running_sum(), view="fold"
    )
    row = stage.page.locator(".agv-fold-entries").bounding_box()
    entry = stage.page.locator(".agv-fold-entry[aria-pressed=true]").bounding_box()
    assert row["y"] <= entry["y"]
    assert entry["y"] + entry["height"] <= row["y"] + row["height"] + 1
