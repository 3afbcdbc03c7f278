"""Sphinx extension: links from the gallery to the reports that ``make gallery`` wrote, if it did.

A name in the first column of the page's table becomes a link to the report of that name, and the
reports become part of the site.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from docutils import nodes
from sphinx.transforms import SphinxTransform

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config

OUTPUT: Final = Path(__file__).parents[2] / "gallery-output"
PAGE: Final = "gallery"


class LinkReports(SphinxTransform):
    """Makes the names of models links to their reports."""

    default_priority = 900

    def apply(self, **_: Any) -> None:
        """Change the document."""
        if self.env.docname != PAGE:
            return
        for row in self.document.findall(nodes.row):
            for name in row.children[0].findall(nodes.literal):
                if (OUTPUT / PAGE / f"{name.astext()}.html").exists():
                    link = nodes.reference("", "", refuri=f"{PAGE}/{name.astext()}.html")
                    name.replace_self(link)
                    link += name


def _add_reports(_: Sphinx, config: Config) -> None:
    if OUTPUT.exists():
        config.html_extra_path = [*config.html_extra_path, str(OUTPUT)]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("config-inited", _add_reports)
    app.add_transform(LinkReports)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
