"""Notebook cells: IPython compiles each under a name that means nothing to its reader."""

from __future__ import annotations

import sys


def cell_number(filename: str) -> int | None:
    """Return the number of the cell that IPython compiled under a name: 3 of ``In [3]``."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    names = getattr(getattr(shell, "compile", None), "_filename_map", None)
    number = names.get(filename) if isinstance(names, dict) else None
    return number if isinstance(number, int) else None
