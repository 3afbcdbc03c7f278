"""Closing of widgets that an earlier run of a notebook cell displayed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from anywidget import AnyWidget

_DISPLAYED: Final[dict[str, tuple[str, list[AnyWidget]]]] = {}
"""By cell id: the id of the last run, and the widgets that it displayed."""


def close_widgets_of_previous_run(widget: AnyWidget) -> None:
    """Close the widgets that the previous run of the current cell displayed; register ``widget``.

    Only for widgets that are referenced by the cell's output alone. Without a notebook, and in a
    notebook without cell ids, nothing is closed.
    """
    cell, run = _running_cell()
    if not cell:
        return
    last_run, widgets = _DISPLAYED.get(cell, (run, []))
    if last_run != run:
        for earlier in widgets:
            earlier.close()
        widgets = []
    _DISPLAYED[cell] = (run, [*widgets, widget])


def _running_cell() -> tuple[str, str]:
    """Return the ids of the running cell and of its run, "" if unknown."""
    ipython: Any = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    parent = shell.get_parent() if hasattr(shell, "get_parent") else None
    if not isinstance(parent, dict):
        return "", ""
    cell = parent.get("metadata", {}).get("cellId") or ""
    return str(cell), str(parent.get("header", {}).get("msg_id", ""))
