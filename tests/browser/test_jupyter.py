"""The widget in JupyterLab: a real server, a real kernel, a real page."""

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
from conftest import give_up
from stage import point_of

TOKEN = "a-token-of-this-test-run"
START_SECONDS = 60

SETUP = """
import sys
sys.path.insert(0, {here!r})
import recordings
from autogradviz.render.widget import TraceWidget
"""

SHOW = """
widget = TraceWidget(recordings.{scene}(), height=560)
widget
"""

SHOW_BUNDLE = """
class Shown:
    def _repr_mimebundle_(self, **_):
        from autogradviz.render.svg import render_svg
        from autogradviz.render.widget import mimebundle
        scene = recordings.plain()
        return mimebundle(scene, render_svg(scene), "in words")
Shown()
"""

IDLE = """() => {
  const panel = window.jupyterapp?.shell?.currentWidget;
  return panel?.sessionContext?.session?.kernel?.status === 'idle';
}"""

ASKED = """async ([code, expected]) => {
  const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
  const future = kernel.requestExecute({ code: '', user_expressions: { answer: code } });
  const reply = await future.done;
  return reply.content.user_expressions.answer.data['text/plain'] === expected;
}"""


def wait_for_python(page, code, expected):
    """Wait until the notebook's kernel says that ``code`` is ``expected``."""
    page.wait_for_function(ASKED, arg=[code, expected], timeout=20_000)


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


class Lab:
    """One JupyterLab server on a folder of its own."""

    def __init__(self, folder):
        self.folder = folder
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
                *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
                *("--ip=127.0.0.1", f"--port={self.port}", "--ServerApp.port_retries=0"),
                f"--IdentityProvider.token={TOKEN}",
                f"--ServerApp.root_dir={folder / 'work'}",
                "--LabApp.expose_app_in_browser=True",
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
            time.sleep(0.2)  # a poll: the server has no other way to say that it is up
        give_up(f"JupyterLab did not start: {(self.folder / 'server.log').read_text()[-500:]}")

    def answers(self):
        try:
            with urllib.request.urlopen(f"{self.url}/api/status?token={TOKEN}", timeout=2):
                return True
        except (URLError, OSError):
            return False

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=20)
        self.log.close()

    def write(self, name, *cells):
        path = self.folder / "work" / name
        path.write_text(json.dumps(notebook(*cells)), encoding="utf-8")
        return f"{self.url}/lab/tree/{name}?token={TOKEN}&reset"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    pytest.importorskip("jupyterlab")
    lab = Lab(tmp_path_factory.mktemp("lab"))
    try:
        lab.wait()
        yield lab
    finally:
        lab.stop()


@pytest.fixture
def run(lab, open_page):
    """Open a notebook, run it all, and return the page."""

    def start(name, *cells):
        local = (lab.url, lab.url.replace("http", "ws"), "data:", "blob:")
        page = open_page(allowed=local, viewport={"width": 1360, "height": 900})
        page.set_default_timeout(60_000)
        setup = SETUP.format(here=str(Path(__file__).parent))
        page.goto(lab.write(name, setup, *cells))
        page.wait_for_function(IDLE)
        page.evaluate("jupyterapp.commands.execute('application:toggle-left-area')")
        page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
        return page

    return start


def test_what_is_clicked_in_the_notebook_is_known_in_python(run, picture):
    page = run("clicks.ipynb", SHOW.format(scene="plain"))
    page.wait_for_selector(".agv-canvas[data-camera]")
    wait_for_python(page, "widget.selected", "{}")

    scene = recordings.plain()
    opened = {group.index for group in scene.groups if group.open or not group.index}
    repeat = next(group.index for group in scene.groups if group.repeat == 3)
    rows = page.locator("[role=treeitem]").count()
    page.mouse.click(*point_of(page, scene, "group", repeat, opened))
    page.wait_for_selector("[role=treeitem][aria-selected=true][aria-expanded=true]")
    assert page.locator("[role=treeitem]").count() == rows + 3

    softmax = next(node.index for node in scene.nodes if node.op == "softmax")
    page.mouse.click(*point_of(page, scene, "node", softmax, opened | {repeat}))
    page.wait_for_selector(".agv-details h3 >> text='SoftmaxBackward0'")
    code = "widget.selected['kind'], widget.selected['name']"
    wait_for_python(page, code, "('node', 'SoftmaxBackward0')")
    page.screenshot(path=picture("lab-light"))

    page.focus(".agv-canvas")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Escape")
    wait_for_python(page, "widget.selected", "{}")

    page.evaluate(
        "jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Dark'})"
    )
    page.wait_for_selector(".agv[data-theme=dark]")
    page.wait_for_selector("#jupyterlab-splash", state="detached")
    page.screenshot(path=picture("lab-dark"))
    page.evaluate(
        "jupyterapp.commands.execute('apputils:change-theme', {theme: 'JupyterLab Light'})"
    )
    page.wait_for_selector(".agv[data-theme=light]")


def test_a_failing_step_opens_on_its_finding_in_the_notebook(run, picture):
    page = run("failing.ipynb", SHOW.format(scene="failing"))
    page.wait_for_selector(".agv-banner")
    page.screenshot(path=picture("lab-failing-light"))
    assert "written" in page.text_content(".agv-banner h3")


def test_a_notebook_shows_the_widget_and_saves_the_picture_with_it(run, lab):
    page = run("bundle.ipynb", SHOW_BUNDLE)
    page.wait_for_selector(".agv-canvas[data-camera]")
    page.evaluate("jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("!jupyterapp.shell.currentWidget.context.model.dirty")
    saved = json.loads((lab.folder / "work" / "bundle.ipynb").read_text(encoding="utf-8"))
    kinds = set(saved["cells"][1]["outputs"][0]["data"])
    assert kinds == {
        "application/vnd.jupyter.widget-view+json",
        "image/svg+xml",
        "text/plain",
    }
