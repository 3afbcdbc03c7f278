"""The owner of a graph of an earlier step that was alive when the recording ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.events import OldGraphHeld

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis


def owner_of_old_graph(analysis: Analysis) -> str:
    """Return a sentence about the owner of the oldest live node, "" if none was recorded."""
    for event in analysis.log.of(OldGraphHeld):
        return (
            f"When the recording ended, {event.node_name} of an earlier step was kept alive by "
            f"{event.owner_root}: {event.owner_path}."
        )
    return ""
