"""The page of `autogradviz watch` in a browser."""

from __future__ import annotations

import time

import pytest
import torch

import autogradviz
from autogradviz.events import LossRead
from autogradviz.live.serve_watched_file import serve
from autogradviz.recorder.retention import flight_recorder
from autogradviz.render.html_pages import read_global_live_script, read_live_style


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A recording of three steps and a failing one; its file and its trace."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    path = tmp_path_factory.mktemp("live") / "run.agv"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flight_recorder, "NORMS_SHARE", float("inf"))  # those of each step are read
        with pytest.raises(RuntimeError), autogradviz.record(model, path=path) as trace:
            for _ in range(3):
                optimizer.zero_grad()
                loss = model(torch.ones(2, 4)).square().mean()
                loss.backward()
                optimizer.step()
            wrong = model(torch.ones(2, 4)).exp()
            total = wrong.sum()
            wrong.add_(1)
            total.backward()
    return path, trace


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_page_shows_measures_and_opens_a_step(recorded, open_page, picture, axe, width, scheme):
    path, trace = recorded
    losses = [read.loss for read in trace.log.of(LossRead)]
    with serve(path) as server:
        page = open_page(
            allowed=(server.url, "data:"),
            viewport={"width": width, "height": 720},
            color_scheme=scheme,
            bypass_csp=True,  # for axe
        )
        page.goto(server.url)
        page.get_by_text("4 steps checked, each by itself").wait_for()
        charts = page.get_by_role("slider", name="Step")
        loss, saved, norm, _ = charts.locator("section").all()
        assert "loss" in loss.inner_text()
        charts.focus()
        charts.press("Home")
        assert f"{losses[0]:.7g}" in loss.inner_text()
        assert charts.get_attribute("aria-valuetext").startswith("step 0.")
        charts.press("ArrowRight")
        assert f"{losses[1]:.7g}" in loss.inner_text()
        assert " B" in saved.inner_text()
        assert "all: " in norm.inner_text()
        finding = page.locator(".agv-live-finding")
        assert "wrong.add_(1)" in finding.inner_text()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.screenshot(path=picture(f"live-{width}-{scheme}"), full_page=True)
        page.evaluate(axe)
        violations = page.evaluate(
            "axe.run(document).then((found) => found.violations.map((each) => each.id))"
        )
        assert violations == []
        with page.expect_popup() as popup:
            finding.get_by_role("button", name="Open step 3").click()
        popup.value.locator(".agv-shell").wait_for()
        assert "run.agv, step 3" in popup.value.title()
        popup.value.close()
        page.close()  # before its server


def test_page_says_whether_the_file_is_missing_or_was_removed(recorded, open_page, tmp_path):
    path = tmp_path / "run.agv"
    with serve(path) as server:
        page = open_page(allowed=(server.url, "data:"))
        page.goto(server.url)
        page.get_by_text("waiting: the file does not exist yet").wait_for()
        path.write_bytes(recorded[0].read_bytes())
        page.get_by_text("the recording has ended").wait_for()
        path.unlink()
        page.get_by_text("waiting: the file was removed; these are its last steps").wait_for()
        assert page.get_by_role("slider", name="Step").is_visible()
        page.close()  # before its server


MOUNT = """
(changes) => {
  const traits = { _changes: changes, _wanted: {}, _opened: {} };
  const listeners = {};
  window.traits = traits;
  const model = {
    get: (name) => traits[name],
    set: (name, value) => { traits[name] = value; },
    save_changes: () => {},
    on: (name, callback) => { listeners[name] = callback; },
    off: (name) => { delete listeners[name]; },
  };
  window.change = (name, value) => { traits[name] = value; listeners[`change:${name}`](); };
  window.unmount = autogradviz.default.render({ model, el: document.body });
}
"""


def test_widget_opens_a_step_below_the_charts(recorded, open_page):
    _, trace = recorded
    widget = trace.live()
    deadline = time.monotonic() + 60
    while not widget._changes.get("ended") or widget._changes["unanalyzed"]:
        assert time.monotonic() < deadline, widget._changes
        time.sleep(0.05)
    page = open_page()
    page.set_content("<!doctype html><body></body>")
    page.add_style_tag(content=read_live_style())
    page.add_script_tag(content=read_global_live_script())
    page.evaluate(MOUNT, widget._changes)
    page.get_by_text("the recording has ended").wait_for()
    page.locator(".agv-live-charts").click(position={"x": 78, "y": 60})  # the first step
    widget._wanted = page.evaluate("traits._wanted")
    assert widget._opened["step"] == 0
    page.evaluate("(opened) => change('_opened', opened)", widget._opened)
    step = page.frame_locator("iframe")
    step.locator(".agv-shell").wait_for()
    page.get_by_role("button", name="Close").click()
    assert page.locator("iframe").count() == 0
    page.evaluate("unmount()")
    assert page.locator(".agv").count() == 0
