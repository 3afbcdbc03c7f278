"""The notebooks run, and their saved outputs need no kernel."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from interpreters import run_forked
from needs_documented_torch import needs_documented_torch

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from compare_outputs import is_same_output

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
# The last one prints into a widget, which needs a kernel.
TUTORIALS = NOTEBOOKS[1:-1]
RUNNER = Path(__file__).with_name("run_notebook.py")
SHOWN_ANYWHERE = {"image/svg+xml", "image/png", "text/plain"}
PLOT = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture(scope="module")
def ran():
    """Return the first notebook after a run in a kernel."""
    return run_in_kernel(NOTEBOOKS[0])


def run_in_kernel(path):
    """Return a notebook after a run in a kernel; nbclient raises if a cell fails."""
    from nbclient import NotebookClient

    notebook = read(path)
    NotebookClient(notebook, kernel_name="python3", timeout=120).execute(cwd=str(path.parent))
    return notebook


def read(path):
    import nbformat  # takes seconds, and pytest imports this file in every process

    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(cell):
    """Return the MIME types of a cell's outputs, and "text" for printed text."""
    return {kind for output in cell.outputs for kind in output.get("data", {"text": ""})}


def test_notebooks_are_numbered_and_the_site_lists_them():
    numbers = [int(found.stem[:2]) for found in NOTEBOOKS]
    assert numbers == sorted(set(numbers))
    assert len(numbers) >= 7
    index = (NOTEBOOKS[0].parents[1] / "docs" / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^tutorials/(.*)$", index, re.MULTILINE)
    assert [found.stem for found in NOTEBOOKS] == listed


@pytest.mark.ci(reason="runs a notebook")
def test_cells_run_and_reproduce_the_kinds_of_saved_outputs(ran):
    saved = read(NOTEBOOKS[0])
    for before, after in zip(code_cells(saved), code_cells(ran), strict=True):
        assert kinds(before) - {"image/png", "text/plain"} <= kinds(after), before.source


def printed(cell):
    """Return the stored text that a cell printed."""
    return "".join(o.text for o in cell.outputs if o.get("name") == "stdout")


@pytest.mark.one_in(6, reason="starts a kernel for each notebook", in_ci=3)
@needs_documented_torch
@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_print_what_they_show(tutorial, tmp_path):
    # Without a build of the native engine, all machines record the same events.
    environment = os.environ | {"COLUMNS": "80", "AUTOGRADVIZ_CACHE": str(tmp_path)}
    done = run_forked(RUNNER, tutorial, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    cells = code_cells(read(tutorial))
    for stored, ran in zip(cells, json.loads(done.stdout), strict=True):
        assert ran["error"] == "", stored.source
        assert ran["warnings"] == "", stored.source
        assert is_same_output(printed(stored), ran["text"]), ran["text"]
        results = [o for o in stored.outputs if o.output_type == "execute_result"]
        assert all(is_same_output(o.data["text/plain"], ran["result"]) for o in results)
        plots = [o for o in stored.outputs if PLOT in o.get("data", {})]
        assert not plots or PLOT in ran["kinds"] or ran["result"]


@pytest.mark.slow(reason="starts a kernel")
@needs_documented_torch
def test_callbacks_of_the_viewer_print_into_a_widget(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("AUTOGRADVIZ_CACHE", str(tmp_path))  # without the native engine, as above
    ran = code_cells(run_in_kernel(NOTEBOOKS[-1]))
    stored = code_cells(read(NOTEBOOKS[-1]))
    for one, other in zip(ran, stored, strict=True):
        assert is_same_output(printed(other), printed(one))
    (shown,) = [cell for cell in ran if "details" in cell.source.splitlines()]
    assert kinds(shown) == {WIDGET, "text/plain"}


def test_trace_is_displayed_as_a_widget_with_a_picture(ran):
    (shown,) = [cell for cell in code_cells(ran) if cell.source == "trace"]
    assert kinds(shown) == {WIDGET, "text/html", "image/svg+xml", "text/plain"}


def test_saved_outputs_need_no_kernel(path):
    cells = code_cells(read(path))
    silent = [cell for cell in cells if not cell.outputs]
    assert silent == cells[:1]  # imports
    for cell in cells[1:]:
        assert all(output.output_type != "error" for output in cell.outputs), cell.source
        assert kinds(cell) & {*SHOWN_ANYWHERE, "text"}, cell.source
        assert kinds(cell) <= {*SHOWN_ANYWHERE, "text", PLOT}, cell.source
        assert not kinds(cell) & {PLOT, "image/svg+xml"} or "image/png" in kinds(cell), cell.source


def test_saved_pictures_are_valid(path):
    cells = code_cells(read(path))
    data = [output.data for cell in cells for output in cell.outputs if "data" in output]
    svg = [shown["image/svg+xml"] for shown in data if "image/svg+xml" in shown]
    png = [shown["image/png"] for shown in data if "image/png" in shown]
    assert png
    assert len(png) >= len(svg)
    assert all(text.startswith("<svg") and text.count("<text") > 10 for text in svg)
    assert all(text.startswith("iVBOR") for text in png)


def test_saved_notebook_is_small_and_contains_no_local_path(path):
    text = path.read_text(encoding="utf-8")
    assert len(text) < 2_000_000
    assert re.findall(r"/(?:home|root|tmp|Users|work|usr)/[\w/.-]*", text) == []
