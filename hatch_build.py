"""Builds the long description of the package from README.md.

A package index shows the description without the files of the repository, so relative links and
pictures lead nowhere there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = r"\((?!https?://|mailto:|#)[^)]*\)"
PICTURE = re.compile(rf"^!\[[^\]]*\]{RELATIVE}\n\n?", re.MULTILINE)
LINK = re.compile(rf"\[([^\]]+)\]{RELATIVE}")


def for_package_index(readme: str) -> str:
    """Return a Markdown text without relative pictures, and with relative links as plain text."""
    return LINK.sub(r"\1", PICTURE.sub("", readme))


class PackageIndexReadme(MetadataHookInterface):
    """Sets the field ``readme``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the description to the metadata of the project."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_package_index(text)}
