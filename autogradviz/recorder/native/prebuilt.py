"""The engines that a wheel carries, each for some releases of PyTorch and one version of Python.

``release/build_engines.py`` makes them, and a list that says what each was compiled from. With
other sources, another PyTorch or another Python none is used, and one is built as in a checkout.
"""

from __future__ import annotations

import json
import platform
import sysconfig
from functools import cache
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent / "prebuilt_engines"
LIST: Final = "engines.json"


@cache
def find(sources: str, torch_revision: str | None) -> Path | None:
    """Return the path of the engine that was built for this environment, None if there is none.

    Args:
        sources: the digest of the sources of the engine.
        torch_revision: the revision of PyTorch, which all builds of a release share.
    """
    try:
        listed = json.loads((FOLDER / LIST).read_text(encoding="utf-8"))
        if listed["sources"] != sources:
            return None
        names = (each["file"] for each in listed["engines"] if _fits(each, torch_revision))
        path = next((FOLDER / name for name in names), None)
    except (OSError, ValueError, LookupError, TypeError):  # a checkout, or a damaged installation
        return None
    return path if path is not None and path.exists() else None


def _fits(engine: dict[str, Any], torch_revision: str | None) -> bool:
    return (
        torch_revision in engine["torch_revisions"]
        and engine["python"] == sysconfig.get_config_var("SOABI")
        and engine["machine"] == platform.machine()
    )
