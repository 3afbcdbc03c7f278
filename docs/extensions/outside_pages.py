"""Sphinx extension: pages of the repository outside of ``docs/``, and links to them.

The pages of ``docs/`` link to files of the repository, so that the links work on a code host. On
the site, a link to a file that has a page leads to that page; a link to another file becomes plain
text, because the site has no copy of the file. ``{include}`` of a file outside of ``docs/`` is
expanded here, so that its links are corrected too.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
EXAMPLES = DOCS / "examples"  # programs and packages, no pages of the site

PAGES = {
    "README.md": "index.md",
    "docs/README.md": "index.md",
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "SECURITY.md": "project/security.md",
    "autogradviz/events/__init__.py": "events.md",
    "assets/bench.md": "cost.md",
    "assets/bench_log.md": "cost.md",
    "assets/bench_viewer.md": "cost.md",
    "assets/flight.md": "cost.md",
    "assets/calibration.md": "confidence.md",
    **{
        f"notebooks/{path.name}": f"tutorials/{path.name}"
        for path in (ROOT / "notebooks").glob("*.ipynb")
    },
}
"""The page of the site that shows a file of the repository."""

PICTURES = {".png", ".svg", ".jpg", ".gif"}
INCLUDE = re.compile(r"^```\{include\} (\S+)\n(?::[^\n]*\n)*```$", re.MULTILINE)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s#]+)(#[^()\s]*)?\)")


def correct_links(text: str, folder: Path, page: Path) -> str:
    """Return Markdown whose links work on the site.

    Args:
        text: Markdown whose links are relative to ``folder``.
        folder: the folder of the file that the text comes from.
        page: the file below ``docs/`` that shows the text.
    """

    def correct(found: re.Match[str]) -> str:
        mark, words, target, anchor = found.groups()
        if re.match(r"[a-z]+:", target):
            return found.group()
        path = Path(os.path.normpath(folder / target))
        inside = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
        if inside in PAGES:
            path = DOCS / PAGES[inside]
            anchor = anchor if path.stem == Path(inside).stem.lower() else None
        is_page = path.is_file() and path.is_relative_to(DOCS) and EXAMPLES not in path.parents
        if not (is_page or path.suffix in PICTURES):
            return words
        return f"{mark}[{words}]({os.path.relpath(path, page.parent)}{anchor or ''})"

    return LINK.sub(correct, text)


def read_source(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Expand includes of files outside of ``docs/`` and correct links."""
    page = DOCS / f"{docname}.md"

    def include(found: re.Match[str]) -> str:
        path = (page.parent / found[1]).resolve()
        return correct_links(path.read_text(encoding="utf-8"), path.parent, page)

    text = correct_links(source[0], page.parent, page)
    source[0] = INCLUDE.sub(include, text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("source-read", read_source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
