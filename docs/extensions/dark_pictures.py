"""Sphinx extension: pictures for light and dark pages.

A picture ``NAME-light.png`` or ``NAME.svg`` with a sibling ``NAME-dark.*`` is shown on light pages,
and its sibling on dark pages. Other pictures get a light background.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.transforms import SphinxTransform

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def dark_sibling(uri: str) -> str:
    """Return the name of the dark variant of a picture."""
    stem, _, suffix = uri.rpartition(".")
    return f"{re.sub('-light$', '', stem)}-dark.{suffix}"


class AddDarkPictures(SphinxTransform):
    """Adds the dark variant next to each picture that has one."""

    default_priority = 100  # before pictures are collected

    def apply(self, **_: Any) -> None:
        """Change the document."""
        for image in list(self.document.findall(nodes.image)):
            uri = image["uri"]
            _, path = self.env.relfn2path(uri, self.env.docname)
            if "-dark." in uri or not Path(dark_sibling(path)).exists():
                image["classes"].append("light-background" * ("-dark." not in uri))
                continue
            dark = image.deepcopy()
            dark["uri"] = dark_sibling(uri)
            image["classes"].append("only-light")
            dark["classes"].append("only-dark")
            image.parent.insert(image.parent.index(image) + 1, dark)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.add_transform(AddDarkPictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
