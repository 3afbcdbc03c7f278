"""What a recomputation saved otherwise than the forward that it repeats."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import display_op_name, format_shape
from autogradviz.scene.schema import SceneSavedDiff

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Region, SavedTensor

MOST: Final = 200
"""Rows a region."""


def draw_saved_diffs(analysis: Analysis) -> tuple[SceneSavedDiff, ...]:
    """Return what each region's last recomputation saved otherwise, by position."""
    return tuple(
        row for i, region in enumerate(analysis.regions) for row in _of(analysis, i, region)
    )


def _of(analysis: Analysis, index: int, region: Region) -> Iterator[SceneSavedDiff]:
    if not region.recomputations:
        return
    again = region.recomputations[-1]
    if not again.saved:
        return
    count = 0
    for position, (first, second) in enumerate(zip_longest(region.saved, again.saved)):
        missing = second is None and again.outcome == "early_stop"  # backward needed no more
        before, after = _metadata(first), _metadata(second)
        if missing or before == after or count == MOST:
            continue
        count += 1
        yield SceneSavedDiff(
            region=index,
            position=position,
            slot=_name(analysis, first or second),
            before=before,
            after=after,
        )


def _metadata(saved: SavedTensor | None) -> str:
    if saved is None:
        return "not saved"
    tensor = saved.tensor
    device = "" if tensor.device == "cpu" else f" {tensor.device}"
    return f"{tensor.dtype} {format_shape(tensor.shape)}{device}"


def _name(analysis: Analysis, saved: SavedTensor | None) -> str:
    assert saved is not None, "one of both saved"
    node = analysis.graph.nodes.get(-1 if saved.node_id is None else saved.node_id)
    owner = display_op_name(saved.op.name) if saved.op else node.name if node else ""
    return ".".join(part for part in (owner, saved.slot or "") if part)
