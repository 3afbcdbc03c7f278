"""Builds the long description of the package from README.md, and adds prebuilt engines to a wheel.

A package index shows the description without the files of the repository, so relative links and
pictures lead nowhere there.

A wheel gets the native engines of the folder that the environment variable AUTOGRADVIZ_ENGINES
names, and then the tag of the platform that they are for. Without it, the wheel is for all.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = r"\((?!https?://|mailto:|#)[^)]*\)"
PICTURE = re.compile(
    rf"^(?:!\[[^\]]*\]{RELATIVE}|<picture>.*?</picture>)\n\n?", re.MULTILINE | re.DOTALL
)
PREBUILT = "autogradviz/recorder/native/prebuilt_engines"
PLATFORM = "manylinux_2_28_x86_64"  # that of PyTorch's wheels; release/check_symbols.py checks it
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


class PrebuiltEngines(BuildHookInterface[Any]):
    """Adds the engines, and says that the wheel is for their platform."""

    def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
        """Add the folder of engines, if there is one."""
        folder = os.environ.get("AUTOGRADVIZ_ENGINES")
        if folder:
            build_data["force_include"][folder] = PREBUILT
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{PLATFORM}"
