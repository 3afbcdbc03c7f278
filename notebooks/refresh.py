# ruff: noqa: INP001 - a script, not part of a package
"""Run the notebooks and store outputs that every host can display.

    python notebooks/refresh.py
    python notebooks/refresh.py 03_gan_two_optimizers

Outputs that need a kernel are dropped; pictures and text are stored. Pictures are also stored as
PNG, because JupyterLab does not display the SVG outputs of a notebook that is not trusted. Paths of
this machine are removed.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nbformat
import plotly.io
from nbclient import NotebookClient
from playwright.sync_api import sync_playwright

from autogradviz.render.plotly_figures import CONFIG

if TYPE_CHECKING:
    from playwright.sync_api import ViewportSize

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.resolve()
PLOT: Final = "application/vnd.plotly.v1+json"
SVG: Final = "image/svg+xml"
WIDGET: Final = "application/vnd.jupyter.widget-view+json"
WIDGET_TEXT: Final = re.compile(r"\A(?:<[\w.]*\.)?(\w+)(?:\(.*\)| object at \w+>)\Z", re.DOTALL)
"""The text of a widget without its traits, which are all that it draws, or its address."""
KEPT: Final = (SVG, "image/png", PLOT, "text/plain")
WIDTH: Final = 900
BROWSERS: Final = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
PATHS: Final = (
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
            outputs = (output for output in cell.outputs if not loads_script_only(output))
            cell.outputs = joined([clean(output) for output in outputs])
    nbformat.write(notebook, path)


def loads_script_only(output: Any) -> bool:
    """Return whether an output only loads a script, as plotly's first output does."""
    return output.output_type == "display_data" and set(output.data) == {"text/html"}


def joined(outputs: list[Any]) -> list[Any]:
    """Return the outputs with successive pieces of printed text as one output."""
    found: list[Any] = []
    for output in outputs:
        if found and output.get("name") and output.get("name") == found[-1].get("name"):
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def clean(output: Any) -> Any:
    """Reduce an output to the formats that every host can display."""
    if "data" in output:
        if WIDGET in output.data:
            output.data["text/plain"] = WIDGET_TEXT.sub(r"\1", output.data["text/plain"])
        output.data = {kind: output.data[kind] for kind in KEPT if kind in output.data}
        output.metadata = {}
        if PLOT in output.data:
            output.data[PLOT]["config"] = CONFIG
            add_screenshot(output, plot_page(output.data[PLOT]), ".main-svg", density=2)
        for kind in ("text/plain", SVG):
            if kind in output.data:
                output.data[kind] = remove_paths(output.data[kind])
        if SVG in output.data:
            add_screenshot(output, output.data[SVG], "svg", density=1)
    elif "text" in output:
        output.text = remove_paths(output.text)
    return output


def remove_paths(text: str) -> str:
    """Return the text without directories of this machine."""
    for path, replacement in PATHS:
        text = path.sub(replacement, text)
    return text


def plot_page(figure: dict[str, Any]) -> str:
    """Return an HTML page that shows a figure from its stored JSON."""
    content = {part: figure[part] for part in ("data", "layout")}
    stored = plotly.io.from_json(plotly.io.to_json(content, validate=False))
    return str(stored.to_html(config=CONFIG, include_plotlyjs=True))


def add_screenshot(output: Any, page: str, selector: str, *, density: int) -> None:
    """Add a PNG of one element of a page, and its display width."""
    with sync_playwright() as playwright:
        program = next(filter(None, map(shutil.which, BROWSERS)), None)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        size: ViewportSize = {"width": WIDTH, "height": 380}
        view = browser.new_page(viewport=size, device_scale_factor=density)
        view.set_content(page)
        element = view.locator(selector).first
        picture = element.screenshot(omit_background=True)
        box = element.bounding_box()
        browser.close()
    assert box is not None, "the element is not visible"
    output.data["image/png"] = base64.b64encode(picture).decode()
    output.metadata["image/png"] = {"width": min(WIDTH, round(box["width"]))}


def main() -> None:
    """Refresh the notebooks that are named on the command line, or all."""
    os.environ["OMP_NUM_THREADS"] = "1"  # the models are small; timings vary less
    os.environ["COLUMNS"] = "80"
    with tempfile.TemporaryDirectory() as folder:
        # Without a build of the native engine, all machines record the same events.
        os.environ["AUTOGRADVIZ_NATIVE_BUILD"] = "0"
        os.environ["AUTOGRADVIZ_CACHE"] = folder
        for path in sorted(HERE.glob("*.ipynb")):
            if path.stem in (sys.argv[1:] or [path.stem]):
                refresh(path)
                print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")  # noqa: T201


if __name__ == "__main__":
    main()
