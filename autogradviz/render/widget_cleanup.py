"""Close the widgets of a notebook cell when the cell is run again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from anywidget import AnyWidget

_DISPLAYED: Final[dict[str, tuple[str, list[AnyWidget]]]] = {}
"""By cell: the id of its last run, and the widgets that the run displayed."""


def close_widgets_of_previous_run(widget: AnyWidget) -> None:
    """Close the widgets that the running cell displayed in its previous run; register this one.

    Only for widgets that the program holds no reference to. Does nothing outside a notebook, and
    in notebooks without cell ids.
    """
    cell, run = _running_cell()
    if not cell:
        return
    last_run, widgets = _DISPLAYED.get(cell, (run, []))
    if last_run != run:
        for old in widgets:
            old.close()
        widgets = []
    _DISPLAYED[cell] = (run, [*widgets, widget])


def _running_cell() -> tuple[str, str]:
    """Return the ids of the running cell and of this run, "" if unknown."""
    ipython: Any = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython is not None else None
    parent = shell.get_parent() if hasattr(shell, "get_parent") else None
    if not isinstance(parent, dict):
        return "", ""
    cell = parent.get("metadata", {}).get("cellId") or ""
    return str(cell), str(parent.get("header", {}).get("msg_id", ""))
