"""The widget in JupyterLab and in Notebook 7, with real servers and kernels."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.error import URLError

import pytest
import recordings
from conftest import fail_or_skip
from viewer_page import closed_groups, first_open, point_of

pytestmark = pytest.mark.slow(reason="starts JupyterLab, Notebook 7 and a kernel for each test")

TOKEN = "a-token-of-this-test-run"
START_SECONDS = 60

SETUP = """
import sys
sys.path.insert(0, {here!r})
import recordings
from autogradviz.render.svg import render_svg
from autogradviz.render.widget import TraceWidget, display_for_cell
def make_widget():
    scene = recordings.plain()
    return TraceWidget(scene, picture=lambda: render_svg(scene), words=lambda: "in words")
"""

SHOW = """
widget = TraceWidget(recordings.{scene}(), height=560)
widget
"""

SHOW_HELD = """
held = make_widget()
held
"""

SHOW_TRACE = """
class Shown:
    def _ipython_display_(self):
        display_for_cell(make_widget())
Shown()
"""

SHOW_LIVE = """
import autogradviz, torch
from IPython.display import display
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with autogradviz.record(model, keep_steps=4) as trace:
    display(trace.live())
    for _ in range(3):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
"""

SHOW_TWO = """
import ipywidgets
first = TraceWidget(recordings.plain(), height=420)
second = TraceWidget(recordings.failing(), height=420)
ipywidgets.HBox([first, second], layout={"width": "100%"})
"""

SHOW_PICTURES = """
import autogradviz, torch
layers = [torch.nn.Linear(8, 8, dtype=torch.float32) for _ in range(12)]
with autogradviz.record() as trace:
    sum(layer(torch.ones(2, 8)).exp().sum() for layer in layers).backward()
from IPython.display import display
display(trace.graph(), trace.graph(depth=0), trace.fold())
"""

CUT_PICTURES = """() => [...document.querySelectorAll('.jp-RenderedSVG, .jp-RenderedImage')]
  .map((box) => box.querySelector('svg, img').getBoundingClientRect().right
    - box.closest('.jp-OutputArea-child').getBoundingClientRect().right)"""

IDLE = """() => {
  const panel = window.jupyterapp?.shell?.currentWidget;
  return panel?.sessionContext?.session?.kernel?.status === 'idle';
}"""

EVALUATE = """async ([code, expected]) => {
  const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
  const future = kernel.requestExecute({ code: '', user_expressions: { answer: code } });
  const reply = await future.done;
  return reply.content.user_expressions.answer.data['text/plain'] === expected;
}"""


def run_in_kernel(page, code):
    """Evaluate code in the kernel of the notebook."""
    wait_for_python(page, code, "None")


def wait_for_python(page, code, expected):
    """Wait until ``code`` evaluates to ``expected`` in the kernel of the notebook."""
    page.wait_for_function(EVALUATE, arg=[code, expected], timeout=20_000)


STABLE = """async () => {
  const place = () => {
    const canvas = document.querySelector(".agv-canvas");
    return JSON.stringify([canvas.getBoundingClientRect(), canvas.dataset.camera]);
  };
  for (let before = "", same = 0; same < 5; ) {
    same = before === place() ? same + 1 : 0;
    before = place();
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}"""


def click(page, *picture_point):
    """Click in the picture once it has stopped moving: cells grow while outputs arrive."""
    page.evaluate(STABLE)
    page.mouse.click(*point_of(page, *picture_point))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def notebook(*cells):
    return {
        "cells": [
            {
                "cell_type": "code",
                "id": f"cell-{number}",
                "execution_count": None,
                "metadata": {},
                "outputs": [],
                "source": source.strip(),
            }
            for number, source in enumerate(cells)
        ],
        "metadata": {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


APPS = {
    "lab": ("jupyterlab", "LabApp", "lab/tree"),
    "notebook": ("notebook", "JupyterNotebookApp", "notebooks"),
}


# Notebook 7 is built from the parts of JupyterLab: what differs is tested in both.
IN_LAB = pytest.mark.parametrize("server", ["lab"], indirect=True, scope="module")


class Server:
    """A server of an application, in a separate folder."""

    def __init__(self, folder, app):
        self.folder, self.app = folder, app
        self.module, trait, self.tree = APPS[app]
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        settings = folder / "settings" / "@jupyterlab" / "apputils-extension"
        settings.mkdir(parents=True)
        quiet = {"fetchNews": "false", "checkForUpdates": False}
        path = settings / "notification.jupyterlab-settings"
        path.write_text(json.dumps(quiet), encoding="utf-8")
        (folder / "work").mkdir()
        places = {
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "IPYTHONDIR": "ipython",
        }
        environment = os.environ | {name: str(folder / place) for name, place in places.items()}
        self.log = (folder / "server.log").open("w", encoding="utf-8")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", self.module, "--no-browser", "--allow-root"),
                *("--ip=127.0.0.1", f"--port={self.port}", "--ServerApp.port_retries=0"),
                f"--IdentityProvider.token={TOKEN}",
                f"--ServerApp.root_dir={folder / 'work'}",
                f"--{trait}.expose_app_in_browser=True",
            ],
            env=environment,
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def wait(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            if self.answers():
                return
            time.sleep(0.2)  # poll: the server sends no notification of its start
        log = (self.folder / "server.log").read_text()
        fail_or_skip(f"{self.module} did not start: {log[-500:]}")

    def answers(self):
        try:
            with urllib.request.urlopen(f"{self.url}/api/status?token={TOKEN}", timeout=2):
                return True
        except (URLError, OSError):
            return False

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:  # it stops its kernels first, which may take long
            self.process.kill()
            self.process.wait()
        self.log.close()

    def write(self, name, *cells):
        path = self.folder / "work" / name
        path.write_text(json.dumps(notebook(*cells)), encoding="utf-8")
        return self.address(name)

    def address(self, name):
        return f"{self.url}/{self.tree}/{name}?token={TOKEN}&reset"


@pytest.fixture(scope="module", params=APPS)
def server(request, tmp_path_factory):
    pytest.importorskip(APPS[request.param][0])
    server = Server(tmp_path_factory.mktemp(request.param), request.param)
    try:
        server.wait()
        yield server
    finally:
        server.stop()


@pytest.fixture
def show(server, open_page):
    """Open a notebook and return the page."""

    def start(address, **options):
        local = (server.url, server.url.replace("http", "ws"), "data:", "blob:")
        page = open_page(allowed=local, viewport={"width": 1360, "height": 900}, **options)
        page.set_default_timeout(60_000)
        page.goto(address)
        page.wait_for_function(IDLE)
        if server.app == "lab":
            page.evaluate("jupyterapp.commands.execute('application:toggle-left-area')")
        return page

    return start


@pytest.fixture
def run(server, show):
    """Open a notebook, run all cells, and return the page."""

    def start(name, *cells):
        setup = SETUP.format(here=str(Path(__file__).parent))
        page = show(server.write(name, setup, *cells))
        page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
        return page

    return start


def save(page):
    page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("!jupyterapp.shell.currentWidget.context.model.dirty")


def test_click_in_the_notebook_is_synchronized_to_python(run, picture, server):
    page = run("clicks.ipynb", SHOW.format(scene="plain"))
    page.click(".agv-rail [data-view=graph]")
    page.wait_for_selector(".agv-canvas[data-camera]")
    wait_for_python(page, "widget.selected", "{}")

    scene = recordings.plain()
    opened = first_open(scene)
    group = closed_groups(scene, opened)[0]
    rows = page.locator("[role=treeitem]").count()
    click(page, scene, "group", group, opened)
    page.wait_for_selector("[role=treeitem][aria-selected=true][aria-expanded=true]")
    assert page.locator("[role=treeitem]").count() > rows

    softmax = next(node.index for node in scene.nodes if node.op == "softmax")
    page.keyboard.press("f")  # the open group may have moved it below the visible part
    click(page, scene, "node", softmax, opened | {group})
    page.wait_for_selector(".agv-details h3 >> text='SoftmaxBackward0'")
    code = "widget.selected['kind'], widget.selected['name']"
    wait_for_python(page, code, "('node', 'SoftmaxBackward0')")
    page.screenshot(path=picture(f"{server.app}-light"))

    page.focus(".agv-canvas")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Escape")
    wait_for_python(page, "widget.selected", "{}")

    page.evaluate(
        "jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"
    )
    page.wait_for_selector(".agv[data-theme=dark]")
    page.wait_for_selector("#jupyterlab-splash", state="detached")
    page.screenshot(path=picture(f"{server.app}-dark"))
    page.evaluate(
        "jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'})"
    )
    page.wait_for_selector(".agv[data-theme=light]")


@IN_LAB
def test_failing_step_opens_at_its_finding_in_the_notebook(run, picture, server):
    page = run("failing.ipynb", SHOW.format(scene="failing"))
    page.wait_for_selector(".agv-details .agv-card")
    page.screenshot(path=picture(f"{server.app}-failing-light"))
    assert "written" in page.text_content(".agv-details .agv-card-title")


@IN_LAB
def test_select_focus_and_color_by_are_synchronized_from_python(run):
    page = run("selects.ipynb", SHOW.format(scene="plain"), "widget.select('relu')")
    page.wait_for_selector(".agv-details h3 >> text='ReluBackward0'")
    wait_for_python(page, "widget.selected['module']", "'blocks.0'")
    run_in_kernel(page, "widget.focus('blocks.1')")
    page.wait_for_selector(".agv-details h3 >> text='blocks.1'")
    run_in_kernel(page, "setattr(widget, 'color_by', 'bytes')")
    page.wait_for_selector(".agv-color-scale >> text='bytes'")
    page.select_option(".agv-menu select", "time")
    wait_for_python(page, "widget.color_by", "'time'")


@IN_LAB
def test_live_widget_follows_the_recording_and_opens_a_step(run, picture, server):
    page = run("live.ipynb", SHOW_LIVE)
    page.get_by_text("3 steps checked, each by itself").wait_for()
    # The charts have the height that they need, not that of an empty box.
    assert page.locator(".agv-live").bounding_box()["height"] > 200
    charts = page.get_by_role("slider", name="Step")
    charts.focus()
    charts.press("Home")
    charts.press("Enter")
    page.locator(".agv-live iframe").scroll_into_view_if_needed()  # it draws nothing outside
    step = page.frame_locator(".agv-live iframe")
    step.locator(".agv-rail [data-view=graph]").click()
    step.locator(".agv-canvas[data-camera]").wait_for()
    assert "addmm" in step.locator("[role=tree]").inner_text()
    page.screenshot(path=picture(f"{server.app}-live-light"))


@IN_LAB
def test_two_widgets_are_displayed_in_one_box(run, picture, server):
    page = run("box.ipynb", SHOW_TWO)
    page.locator(".agv-rail [data-view=graph]").first.click()
    page.wait_for_function("document.querySelectorAll('.agv-canvas[data-camera]').length === 2")
    boxes = [box.bounding_box() for box in page.locator(".agv").all()]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"] + 1
    assert min(box["width"] for box in boxes) > 300
    wait_for_python(page, "first.selected", "{}")
    wait_for_python(page, "second.selected['name']", "'SoftmaxBackward0'")
    page.screenshot(path=picture(f"{server.app}-two-light"))


@IN_LAB
def test_large_graph_is_laid_out_in_a_worker_in_the_notebook(run):
    page = run("large.ipynb", SHOW.format(scene="large"))
    page.wait_for_selector(".agv-canvas[data-camera]")
    assert any(worker.url.startswith("blob:") for worker in page.workers)
    assert page.is_hidden(".agv-layout-status")


@IN_LAB
def test_rerun_cell_has_one_widget(run):
    page = run("again.ipynb", SHOW_TRACE)
    page.wait_for_selector(".agv-fold-canvas")
    for _ in range(2):
        page.evaluate("document.querySelector('.agv').dataset.old = 'old'")
        page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
        page.wait_for_selector(".agv[data-old]", state="detached")
        page.wait_for_selector(".agv-fold-canvas")
    assert page.locator(".agv").count() == 1
    assert page.locator("[data-agv-still]").count() == 1
    code = (
        "len([w for w in __import__('ipywidgets').widgets.widget._instances.values()"
        " if type(w).__name__ == 'TraceWidget'])"
    )
    wait_for_python(page, code, "1")


@pytest.mark.parametrize("cell", [SHOW_TRACE, SHOW_HELD], ids=["trace", "widget"])
def test_notebook_reopened_without_its_kernel_shows_the_picture(
    run, server, browser, picture, cell
):
    page = run("bundle.ipynb", cell)
    page.wait_for_selector(".agv-fold-canvas")
    assert page.is_hidden("[data-agv-still] img")
    save(page)
    saved = json.loads((server.folder / "work" / "bundle.ipynb").read_text(encoding="utf-8"))
    shown, still = saved["cells"][1]["outputs"]
    assert set(shown["data"]) == {"application/vnd.jupyter.widget-view+json", "text/plain"}
    assert set(still["data"]) == {"image/svg+xml", "text/html"}
    page.evaluate("jupyterapp.serviceManager.sessions.shutdownAll()")
    for theme in ("light", "dark"):
        again = browser.new_page(viewport={"width": 1360, "height": 900}, color_scheme=theme)
        again.goto(server.address("bundle.ipynb"))
        again.wait_for_selector("[data-agv-still] img", timeout=60_000)
        again.wait_for_function(
            "document.querySelector('[data-agv-still] img').naturalWidth > 300", timeout=60_000
        )
        words = again.locator(".jp-Notebook").inner_text()
        assert "model not found" not in words
        assert "Loading widget" not in words
        again.screenshot(path=picture(f"{server.app}-reopened-{theme}"))
        again.close()


def test_pictures_are_as_wide_as_the_cell_at_most(run, picture, server):
    page = run("pictures.ipynb", SHOW_PICTURES)
    page.wait_for_function(f"({CUT_PICTURES})().length === 3")
    page.screenshot(path=picture(f"{server.app}-pictures"), full_page=True)
    assert [over for over in page.evaluate(CUT_PICTURES) if over > 0] == []
