"""Assets of the viewer: script and style sheet, read from the package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

EXPORT: Final = "export default autogradviz.default;"
"""The last line of the bundle, which makes it an ES module. Without it, it sets a global."""


@cache
def read_script() -> str:
    """Return the viewer as an ES module."""
    return _read("viewer.js")


@cache
def read_global_script() -> str:
    """Return the viewer as a plain script that sets the global ``autogradviz``."""
    script = read_script().rstrip()
    assert script.endswith(EXPORT), "the viewer's bundle has no export line"
    return script.removesuffix(EXPORT)


@cache
def read_global_run_script() -> str:
    """Return the viewer of runs as a plain script that sets the global ``autogradvizRun``."""
    return _read("run.js")


@cache
def read_run_script() -> str:
    """Return the viewer and the viewer of runs as one ES module, which exports the latter."""
    export = EXPORT.replace("autogradviz.", "autogradvizRun.")
    return f"{read_global_script()}\n{read_global_run_script()}\n{export}\n"


@cache
def read_run_style() -> str:
    """Return the style sheet of the viewer of runs, which follows that of the viewer."""
    return _read("run.css")


@cache
def read_style() -> str:
    """Return the viewer's style sheet."""
    return _read("viewer.css")


@cache
def read_live_script() -> str:
    """Return the live view as an ES module."""
    return _read("live.js")


@cache
def read_global_live_script() -> str:
    """Return the live view as a plain script that sets the global ``autogradviz``."""
    return read_live_script().rstrip().removesuffix(EXPORT)


@cache
def read_live_style() -> str:
    """Return the style sheet of the live view."""
    return _read("live.css")


def _read(name: str) -> str:
    return (files("autogradviz.render") / "static" / name).read_text(encoding="utf-8")
