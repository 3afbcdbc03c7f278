"""Widgets that a cell showed: when it runs again its output is gone, and they end with it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from anywidget import AnyWidget

_SHOWN: Final[dict[str, tuple[str, list[AnyWidget]]]] = {}
"""By cell: the run that showed, and what it showed."""


def close_widgets_of_previous_run(widget: AnyWidget) -> None:
    """Close what the running cell showed when it ran before, and remember ``widget`` instead.

    Only for widgets that nobody but the cell's output holds. Outside a notebook, and in one that
    does not tell its cells apart, nothing is closed.
    """
    cell, run = _running_cell()
    if not cell:
        return
    last_run, widgets = _SHOWN.get(cell, (run, []))
    if last_run != run:
        for earlier in widgets:
            earlier.close()
        widgets = []
    _SHOWN[cell] = (run, [*widgets, widget])


def _running_cell() -> tuple[str, str]:
    """Return the ids of the cell that runs and of this run of it, empty where unknown."""
    ipython: Any = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    parent = shell.get_parent() if hasattr(shell, "get_parent") else None
    if not isinstance(parent, dict):
        return "", ""
    cell = parent.get("metadata", {}).get("cellId") or ""
    return str(cell), str(parent.get("header", {}).get("msg_id", ""))
