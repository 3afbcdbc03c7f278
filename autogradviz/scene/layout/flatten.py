"""The tree of groups as a list, parents first, with the layout of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from autogradviz.scene.layout.cross_group_edges import EdgeRouter, GroupEdges, Layout

if TYPE_CHECKING:
    from autogradviz.scene.fold import FoldedGraph
    from autogradviz.scene.grouping import Tree
    from autogradviz.scene.schema import CellKind


class NodePlace(NamedTuple):
    """Where a node stands."""

    group: int
    alone: bool  # in its row
    path: str  # of the innermost module that is drawn around it


@dataclass(slots=True)
class Level:
    """One group of the tree."""

    tree: Tree
    parent: int
    depth: int
    module_depth: int  # runs, pages and graphs do not count
    children: list[int]
    nodes: list[int]  # its own and those of the groups in it


def list_levels(tree: Tree) -> list[Level]:
    """Return all groups, parents first."""
    levels: list[Level] = []
    _add(tree, -1, levels)
    return levels


def _add(tree: Tree, parent: int, levels: list[Level]) -> int:
    index = len(levels)
    depth = levels[parent].depth + 1 if index else 0
    counts = tree.kind not in {"repeat", "page", "graph"}
    module_depth = levels[parent].module_depth + counts if index else 0
    level = Level(tree, parent, depth, module_depth, [], sorted(tree.all_nodes()))
    levels.append(level)
    level.children = [_add(child, index, levels) for child in tree.groups]
    return index


def lay_out_levels(levels: list[Level], folded: FoldedGraph) -> list[Layout]:
    """Return the layout of every group."""
    wirings = [GroupEdges(level.parent, list(level.tree.nodes), level.children) for level in levels]
    return EdgeRouter(wirings, folded.edges, [node.order for node in folded.nodes]).layouts()


def find_alone(layouts: list[Layout]) -> set[tuple[CellKind, int]]:
    """Return the nodes and groups that share their row with none."""
    alone: set[tuple[CellKind, int]] = set()
    for layout in layouts:
        for row in layout.rows:
            solid = [layout.cells[i] for i in row if layout.cells[i].kind in {"node", "group"}]
            if len(solid) == 1:
                alone.add((solid[0].kind, solid[0].ref))
    return alone


def seat_nodes(
    levels: list[Level], alone: set[tuple[CellKind, int]], count: int
) -> list[NodePlace]:
    """Return every node's seat."""
    seats = [NodePlace(0, alone=False, path="")] * count
    for index, level in enumerate(levels):
        for node in level.tree.nodes:
            seats[node] = NodePlace(index, ("node", node) in alone, level.tree.path)
    return seats
