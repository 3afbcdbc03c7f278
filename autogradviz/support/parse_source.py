"""Parse Python source with the garbage collector paused."""

from __future__ import annotations

import ast

from autogradviz.support.pause_gc import collector_waiting


def parse(source: str) -> ast.Module:
    """Return the syntax tree of a source text, as ``ast.parse`` does.

    If the collector runs a finalizer that parses something as well, CPython 3.11 raises a
    ``SystemError``.
    """
    with collector_waiting():
        return ast.parse(source)
