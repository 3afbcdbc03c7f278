"""The saved tensor whose unpack raised."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from autogradviz.diagnose.text_formatting import slot_name

if TYPE_CHECKING:
    from autogradviz.analysis import SavedTensor, SourceLocation, Unpack
    from autogradviz.diagnose.evidence.facts import Evidence


class FailedSave(NamedTuple):
    """The saved tensor whose unpack raised."""

    saved: SavedTensor | None  # None if the recording does not show it
    unpack: Unpack | None  # the last of this saved tensor
    name: str  # "MulBackward0.self", "a saved tensor"
    location: SourceLocation | None  # the line that saved it


def failed_save(evidence: Evidence) -> FailedSave:
    """Return the saved tensor whose unpack raised, the innermost of nested ones."""
    if evidence.failed_unpack is None:
        return FailedSave(None, None, "a saved tensor", None)
    saved, _ = evidence.failed_unpack
    nodes = evidence.analysis.graph.nodes
    node = nodes.get(saved.node_id) if saved.node_id is not None else None
    location = saved.location or (node.location if node is not None else None)
    name = slot_name(saved, node.name if node is not None else None)
    return FailedSave(saved, saved.unpacks[-1], name, location)
