"""The widget in marimo, with a real server and kernel."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.error import URLError

import pytest
import recordings
from conftest import fail_or_skip
from test_jupyter import free_port
from viewer_page import first_open, point_of

pytestmark = pytest.mark.slow(reason="starts a marimo server and a kernel")

START_SECONDS = 60

NOTEBOOK = f"""
import marimo

app = marimo.App(width="full")


@app.cell
def _():
    import sys

    import marimo as mo

    sys.path.insert(0, {str(Path(__file__).parent)!r})
    import autogradviz
    import recordings
    from autogradviz.render.widget import TraceWidget

    return TraceWidget, autogradviz, mo, recordings


@app.cell
def _(TraceWidget, mo, recordings):
    widget = mo.ui.anywidget(TraceWidget(recordings.plain(), height=560))
    widget
    return (widget,)


@app.cell
def _(mo, widget):
    mo.md("Selected in Python: " + str(widget.value["selected"].get("name")))
    return


@app.cell
def _(autogradviz):
    import torch

    with autogradviz.record() as trace:
        x = torch.full((3,), -1.0, requires_grad=True)
        for _ in range(8):  # with fewer, a trace opens on the graph
            x = x.tanh()
        x.exp().sum().backward()
    trace
    return


if __name__ == "__main__":
    app.run()
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    if importlib.util.find_spec("marimo") is None:
        fail_or_skip("marimo is not installed")
    folder = tmp_path_factory.mktemp("marimo")
    (folder / "notebook.py").write_text(NOTEBOOK, encoding="utf-8")
    url = f"http://127.0.0.1:{(port := free_port())}"
    log = (folder / "server.log").open("w", encoding="utf-8")
    words = ["run", "notebook.py", "--headless", "--no-token", "--host=127.0.0.1", f"--port={port}"]
    server = subprocess.Popen(
        [sys.executable, "-m", "marimo", "-y", *words],
        cwd=folder,
        env=os.environ | {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder)},
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not answers(url):
            if time.monotonic() > deadline or server.poll() is not None:
                fail_or_skip(f"marimo did not start: {(folder / 'server.log').read_text()[-500:]}")
            time.sleep(0.2)  # poll: the server sends no notification of its start
        yield url
    finally:
        server.kill()
        server.wait()
        log.close()


def answers(url):
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2):
            return True
    except (URLError, OSError):
        return False


def test_click_in_marimo_is_synchronized_to_python(address, open_page, picture):
    local = (address, address.replace("http", "ws"), "data:", "blob:")
    page = open_page(allowed=local, viewport={"width": 1360, "height": 900})
    page.set_default_timeout(60_000)
    page.goto(address)
    page.locator(".agv-fold-canvas").nth(1).wait_for()  # inside shadow roots
    page.locator(".agv-rail [data-view=graph]").first.click()
    page.locator(".agv-canvas[data-camera]").first.wait_for()
    page.wait_for_selector("text='Selected in Python: None'")
    scene = recordings.plain()
    opened = first_open(scene)
    node = next(n for n in scene.nodes if n.group in opened)
    page.mouse.click(*point_of(page, scene, "node", node.index, opened))
    page.wait_for_selector(f".agv-details h3 >> text='{node.name}'")
    page.wait_for_selector(f"text='Selected in Python: {node.name}'")
    page.screenshot(path=picture("marimo-light"))


def test_trace_is_displayed_in_marimo(address, open_page):
    local = (address, address.replace("http", "ws"), "data:", "blob:")
    page = open_page(allowed=local, viewport={"width": 1360, "height": 900})
    page.set_default_timeout(60_000)
    page.goto(address)
    page.locator(".agv-fold-title button:visible").last.click()  # the fold alone is displayed first
    page.locator(".agv-rail [data-view=graph]").last.click()
    page.wait_for_selector("[role=treeitem] >> text='exp'")
