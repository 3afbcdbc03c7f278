"""Draw the pictures of the guides and of the findings: part of ``make pictures``.

With names of findings as arguments, only their pictures are drawn; that needs no browser.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from draw_readme_pictures import ARGUMENTS, BROWSERS
from open_report_view import open_view
from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS))
from run_examples import (  # noqa: E402 - found in docs/
    PAGES,
    changed_directory,
    finding_text,
    findings,
    project_folder,
    run_finding_text,
    run_page,
)
from run_rank_examples import start_all  # noqa: E402

from autogradviz import FlameGraphView, GraphView, load  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

    from playwright.sync_api import Page

PICTURES = DOCS / "pictures"
VIEWS = {
    "nondeterministic": "checkpoint",
    "memory": "tensors",
    "plain": "memory",
    "comparison": "compare",
    "checkpointed": "timeline",
    "run": "Ops of two ranks",
    "audit": "findings",
}
"""The view of a report that a guide writes, ``memory.html``, whose picture the guide shows."""
CHOICES = {"plain": "checkpoint"}
"""The first button of this name is pressed in that view."""
ROWS = {"audit": "one path from 2 parameters"}
"""The first row of a list with this text is chosen in that view."""


def draw_findings(slugs: Sequence[str] = ()) -> None:
    """Draw the graph of each finding's example, or of some, and store the text of the finding."""
    folder = PICTURES / "findings"
    if not slugs:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    for slug, trace in findings(slugs):
        try:
            text = finding_text(trace)
        except LookupError as error:
            sys.exit(f"{slug}: {error}")
        (folder / f"{slug}.txt").write_text(text, encoding="utf-8")
        if trace.analysis.graph.nodes:
            draw_graph(trace.graph(), folder / f"{slug}.svg")


def print_run_findings() -> None:
    """Store the text of the finding of each example on several processes."""
    with project_folder() as folder:
        start_all(folder)
        for project in folder.glob("*/project"):
            with changed_directory(project):
                text = run_finding_text(load("run/"))
            slug = project.parent.name
            (PICTURES / "findings" / f"{slug}.txt").write_text(text, encoding="utf-8")


def draw_graph(view: GraphView | FlameGraphView, path: Path) -> None:
    """Write a graph for light and for dark pages."""
    view.svg(path)
    view.svg(path.with_name(f"{path.stem}-dark.svg"), theme="dark")


def draw_guide(page: Path, browser_page: Page) -> None:
    """Draw the pictures of one guide: graphs that it writes, and views of its reports."""
    views: dict[str, GraphView | FlameGraphView] = {}
    kinds = (GraphView, FlameGraphView)
    originals = [kind.svg for kind in kinds]

    def keep(view: GraphView | FlameGraphView, path: str) -> str:
        views[path] = view
        return originals[kinds.index(type(view))](view, path)  # type: ignore[arg-type, operator]

    with project_folder() as folder:
        for kind in kinds:
            kind.svg = keep  # type: ignore[method-assign, assignment]
        try:
            # ``run_examples.py`` compares what they print; here the process has more objects alive.
            for _ in run_page(page, folder):
                pass
        finally:
            for kind, original in zip(kinds, originals, strict=True):
                kind.svg = original  # type: ignore[method-assign, assignment]
        with changed_directory(folder):  # lines are named relative to it
            for path, view in views.items():
                draw_graph(view, PICTURES / path)
        for report in folder.glob("*.html"):
            if report.stem in VIEWS:
                shoot(browser_page, report, VIEWS[report.stem])


def shoot(page: Page, report: Path, view: str) -> None:
    """Take a picture of one view of a report, for light and for dark pages."""
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        page.goto(report.as_uri())
        page.wait_for_selector(".agv-shell, .agv-run-bar")
        open_view(page, view)
        if report.stem in CHOICES:
            page.locator(".agv-table .agv-choice button").get_by_text(
                CHOICES[report.stem]
            ).first.click()
        if report.stem in ROWS:
            page.get_by_role("option").filter(has_text=ROWS[report.stem]).first.click()
        page.wait_for_timeout(400)  # the picture waits for no event of its own
        page.screenshot(path=PICTURES / f"{report.stem}-{theme}.png")


def main() -> None:
    """Draw everything, or the findings that the arguments name."""
    PICTURES.mkdir(exist_ok=True)
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    os.environ["AUTOGRADVIZ_NATIVE_BUILD"] = "0"
    os.environ["COLUMNS"] = "80"
    with tempfile.TemporaryDirectory() as empty:
        os.environ["AUTOGRADVIZ_CACHE"] = empty  # pictures do not depend on the native engine
        draw_findings(sys.argv[1:])
        if not sys.argv[1:]:
            draw_rest(browser)


def draw_rest(browser: str | None) -> None:
    """Print the findings of runs, and draw the pictures of the guides."""
    with sync_playwright() as playwright:
        print_run_findings()
        chromium = playwright.chromium.launch(executable_path=browser, args=ARGUMENTS)
        page = chromium.new_page(viewport={"width": 1280, "height": 700})
        for guide in PAGES:
            draw_guide(guide, page)
        chromium.close()


if __name__ == "__main__":
    main()
