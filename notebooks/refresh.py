# ruff: noqa: INP001 - a script, in a folder that is no package
"""Runs the notebooks and keeps their outputs as every host can show them.

    python notebooks/refresh.py

Outputs that need a kernel are left to it: saved are pictures and words. Paths of this machine are
left out.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
from pathlib import Path
from typing import Any, Final

import nbformat
import plotly.io
from nbclient import NotebookClient
from playwright.sync_api import sync_playwright

from autogradviz.render.plots import plot_html

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.resolve()
PLOT: Final = "application/vnd.plotly.v1+json"
KEPT: Final = ("image/svg+xml", "image/png", PLOT, "text/plain")
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PLACES: Final = (
    (re.compile(re.escape(f"{ROOT}/")), ""),
    (re.compile(r"/\w+/ipykernel_\d+/\d+\.py"), "cell"),
    (re.compile(r"(?:/[\w.+-]+)+/site-packages/"), ""),
)


def refresh(path: Path) -> None:
    """Run one notebook in place."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, kernel_name="python3", timeout=300, record_timing=False).execute(
        cwd=str(HERE)
    )
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [clean(output) for output in cell.outputs if not is_set_up(output)]
    nbformat.write(notebook, path)


def is_set_up(output: Any) -> bool:
    """Return whether an output only brings a script, as plotly's first one does."""
    return output.output_type == "display_data" and set(output.data) == {"text/html"}


def clean(output: Any) -> Any:
    """Return an output with what every host can show."""
    if "data" in output:
        output.data = {kind: output.data[kind] for kind in KEPT if kind in output.data}
        output.metadata = {}
        if PLOT in output.data:
            output.data["image/png"] = photograph(output.data[PLOT])
            output.data["text/plain"] = "<Figure>"
        for kind in ("text/plain", "image/svg+xml"):
            if kind in output.data:
                output.data[kind] = without_places(output.data[kind])
    elif "text" in output:
        output.text = without_places(output.text)
    return output


def without_places(text: str) -> str:
    """Return text without the folders of this machine."""
    for place, instead in PLACES:
        text = place.sub(instead, text)
    return text


def photograph(figure: dict[str, Any]) -> str:
    """Return a figure as PNG in base64, taken by a browser, at twice the usual density."""
    given = {part: figure[part] for part in ("data", "layout")}
    page = plot_html(plotly.io.from_json(plotly.io.to_json(given, validate=False)))
    with sync_playwright() as playwright:
        program = next(filter(None, map(shutil.which, BROWSERS)), None)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": 900, "height": 380}, device_scale_factor=2)
        view.set_content(page)
        view.wait_for_selector(".main-svg")
        picture = view.screenshot(omit_background=True)
        browser.close()
    return base64.b64encode(picture).decode()


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # the models are small; times are steadier
    for found in sorted(HERE.glob("*.ipynb")):
        refresh(found)
        print(f"{found.name}: {found.stat().st_size / 1e6:.2f} MB")  # noqa: T201 - it is a script
