"""Conditions in which a table was measured: a line below it, and whether that is still true.

The line contains a digest of the sources that the figures depend on. A test compares it with that
of the present sources, so that no document quotes figures of older code.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

PACKAGE = Path(__file__).parents[2] / "autogradviz"
ENGINES = ("recorder/native/*.cpp", "recorder/native/*.h", "recorder/python_engine/*.py")
_PROSE = re.compile(
    r'^[ \t]*r?"""(?:.|\n)*?"""[ \t]*$|^[ \t]*(?:#|//).*$|[ \t]{2}(?:#|//).*$', re.MULTILINE
)
"""Docstrings and comments."""
VIEWER = ("render/static/viewer.js", "render/static/viewer.css")


def digest(sources: Iterable[str] = ENGINES) -> str:
    """Return eight hexadecimal digits of the code of files of the package, without its prose."""
    found = hashlib.sha256()
    for pattern in sources:
        for path in sorted(PACKAGE.glob(pattern)):
            code = _PROSE.sub("", path.read_text(encoding="utf-8"))
            lines = [line for line in code.splitlines() if line.strip()]
            found.update("\n".join([path.name, *lines]).encode())
    return found.hexdigest()[:8]


def line(sources: Iterable[str] = ENGINES) -> str:
    """Return a sentence with date, versions, engine, sources and load of the machine."""
    import torch

    from autogradviz import __version__
    from autogradviz.recorder.native import build

    engine = "native" if build.status().usable else "Python"
    return (
        f"Measured on {time.strftime('%Y-%m-%d')} with autogradviz {__version__}, {engine} engine, "
        f"PyTorch {torch.__version__}, Python {platform.python_version()}; load "
        f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; sources `{digest(sources)}`."
    )


def digests(text: str) -> list[str]:
    """Return the digests of all lines in a table's file."""
    return re.findall(r"; sources `([0-9a-f]{8})`\.", text)
