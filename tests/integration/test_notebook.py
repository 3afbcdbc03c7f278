"""The notebooks run, and their saved outputs need no kernel."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
SHOWN_ANYWHERE = {"image/svg+xml", "image/png", "text/plain"}
PLOT = "application/vnd.plotly.v1+json"
PICTURES = {"01_first_look": (3, 4), "02_compiled_training": (1, 1)}
"""Number of SVG and of PNG outputs."""

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture(scope="module")
def ran(path):
    """Return the notebook after a run; nbclient raises if a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, kernel_name="python3", timeout=120).execute(cwd=str(path.parent))
    return notebook


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(cell):
    """Return the MIME types of a cell's outputs, and "text" for printed text."""
    return {kind for output in cell.outputs for kind in output.get("data", {"text": ""})}


def test_notebooks_exist():
    assert [found.stem for found in NOTEBOOKS] == ["01_first_look", "02_compiled_training"]


def test_cells_run_and_reproduce_the_kinds_of_saved_outputs(path, ran):
    saved = nbformat.read(path, as_version=4)
    for before, after in zip(code_cells(saved), code_cells(ran), strict=True):
        assert kinds(before) - {"image/png", "text/plain"} <= kinds(after), before.source


def test_trace_is_displayed_as_a_widget_with_a_picture(path, ran):
    shown = [cell for cell in code_cells(ran) if cell.source == "trace"]
    assert len(shown) == (path.stem == "01_first_look")
    for cell in shown:
        assert kinds(cell) == {WIDGET, "text/html", "image/svg+xml", "text/plain"}


def test_saved_outputs_need_no_kernel(path):
    cells = code_cells(nbformat.read(path, as_version=4))
    silent = [cell for cell in cells if not cell.outputs]
    assert silent == cells[:1]  # imports
    for cell in cells[1:]:
        assert kinds(cell) & {*SHOWN_ANYWHERE, "text"}, cell.source
        assert kinds(cell) <= {*SHOWN_ANYWHERE, "text", PLOT}, cell.source
        assert not kinds(cell) & {PLOT, "image/svg+xml"} or "image/png" in kinds(cell), cell.source


def test_saved_pictures_are_valid(path):
    cells = code_cells(nbformat.read(path, as_version=4))
    data = [output.data for cell in cells for output in cell.outputs if "data" in output]
    svg = [shown["image/svg+xml"] for shown in data if "image/svg+xml" in shown]
    png = [shown["image/png"] for shown in data if "image/png" in shown]
    assert (len(svg), len(png)) == PICTURES[path.stem]
    assert all(text.startswith("<svg") and text.count("<text") > 10 for text in svg)
    assert all(text.startswith("iVBOR") for text in png)


def test_saved_notebook_is_small_and_contains_no_local_path(path):
    text = path.read_text(encoding="utf-8")
    assert len(text) < 2_000_000
    assert re.findall(r"/(?:home|root|tmp|Users|work|usr)/[\w/.-]*", text) == []
