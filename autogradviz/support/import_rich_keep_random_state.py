"""The classes of rich that this package uses, imported without changing ``random``.

The first import of ``rich.style`` draws a number from Python's global random generator. A trace is
printed, and a finding is added to an error, in the middle of a program that may have seeded the
generator, so its state is restored. The other modules import these classes from here.
"""

from __future__ import annotations

import random
import sys
from importlib import import_module

if "rich.style" not in sys.modules:
    # First what rich.style imports, so that the generator is restored right after the draw.
    for _name in ("color", "errors", "repr", "terminal_theme"):
        import_module(f"rich.{_name}")
    _state = random.getstate()
    import_module("rich.style")
    random.setstate(_state)

from rich.console import Console as RichConsole
from rich.console import Group
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text


class Console(RichConsole):
    """A console whose output pipe may be closed, which its callers report."""

    def on_broken_pipe(self) -> None:
        """Raise the error again; rich would exit with the code 1."""
        raise  # noqa: PLE0704 - called while the error is handled


__all__ = ["Console", "Group", "Padding", "Segment", "Table", "Text"]
