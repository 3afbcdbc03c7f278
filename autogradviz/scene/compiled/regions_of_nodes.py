"""Compiled regions inside the autograd graph: which nodes run them, and which are opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.compiled_graphs.graph_text import is_view

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


def dominating_nodes(
    regions: Sequence[CompiledRegion], region_of: Mapping[int, int], node_count: int
) -> list[int]:
    """Return the first node that runs each region, if the regions say more than the graph.

    Args:
        regions: the compiled regions of a recording.
        region_of: the position of the region that each node runs.
        node_count: number of drawn nodes.

    Returns:
        None of them if the graph has more nodes than the regions have ops.
    """
    first = {region_of[node]: node for node in sorted(region_of, reverse=True)}
    ops = sum(len(regions[at].forward_ops) + len(regions[at].backward_ops) for at in first)
    return sorted(first.values()) if node_count <= ops else []


def region_contents(region: CompiledRegion) -> str:
    """Return the numbers of ops of a region, forward + backward; nothing if they are unknown."""
    if not region.forward_ops and not region.backward_ops:
        return ""
    counts = f"{len(region.forward_ops):,} + {len(region.backward_ops):,} ops"
    again = sum(not is_view(op.target) for op in region.recomputed)
    return f"{counts}, {again:,} recomputed" if again else counts


def picture_sizes(
    rows: Iterable[SceneCompiledRegion], pictures: Iterable[SceneCompiledPicture]
) -> dict[int, tuple[float, float]]:
    """Return width and height of the picture that opens at each node."""
    sizes = {
        picture.region: (picture.width, picture.height) for picture in pictures if picture.initial
    }
    return {node: sizes[row.index] for row in rows for node in row.nodes if row.index in sizes}
