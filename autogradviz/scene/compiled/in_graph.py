"""Compiled regions inside the autograd graph: which nodes run them, and which are opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from autogradviz.analysis.compiled_region_types import CompiledRegion
    from autogradviz.scene.schema import SceneCompiledPicture, SceneCompiledRegion


def region_of_nodes(
    regions: Sequence[CompiledRegion], node_index: Mapping[int, int]
) -> dict[int, int]:
    """Return the position of the region that each node runs.

    Args:
        regions: the compiled regions of a recording.
        node_index: index of each drawn node, by id.

    Returns:
        The position of the region by the index of the node; eager nodes are left out.
    """
    return {
        node_index[run.node_id]: at
        for at, region in enumerate(regions)
        for run in region.runs
        if run.node_id is not None and run.node_id in node_index
    }


def regions_named(regions: Iterable[CompiledRegion], name: str) -> list[CompiledRegion]:
    """Return the regions of a name, a compile id, or else of a function."""
    regions = list(regions)
    found = [each for each in regions if name in {each.name, each.compile_id}]
    return found or [each for each in regions if each.name.partition(" ")[0] == name]


def node_to_open(
    name: str, regions: Sequence[CompiledRegion], region_of: Mapping[int, int]
) -> int | None:
    """Return the first node that runs a region of a name; None if there is none."""
    named = {each.region_id for each in regions_named(regions, name)}
    nodes = [node for node, at in region_of.items() if regions[at].region_id in named]
    return min(nodes, default=None)


def picture_sizes(
    rows: Iterable[SceneCompiledRegion], pictures: Iterable[SceneCompiledPicture]
) -> dict[int, tuple[float, float]]:
    """Return width and height of the picture that opens at each node."""
    sizes = {
        picture.region: (picture.width, picture.height) for picture in pictures if picture.initial
    }
    return {node: sizes[row.index] for row in rows for node in row.nodes if row.index in sizes}
