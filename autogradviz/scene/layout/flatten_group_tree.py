"""The tree of groups as a list, parents first, and the layout of each group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from autogradviz.scene.layout.cross_group_edges import EdgeRouter, GroupEdges, GroupLayout

if TYPE_CHECKING:
    from autogradviz.scene.fold_leaves_and_views import FoldedGraph
    from autogradviz.scene.group_tree_type import GroupTree
    from autogradviz.scene.schema import CellKind


class NodePlace(NamedTuple):
    """The group of a node, and whether the node is alone in its row."""

    group: int
    alone: bool
    path: str  # of the innermost module that is drawn around it


@dataclass(slots=True)
class FlatGroup:
    """One group of the tree, with references to other groups by index."""

    tree: GroupTree
    parent: int
    depth: int
    module_depth: int  # without runs, pages, steps and graphs
    children: list[int]
    nodes: list[int]  # its own and those of its subgroups


def flatten_groups(tree: GroupTree) -> list[FlatGroup]:
    """Return all groups, parents first."""
    groups: list[FlatGroup] = []
    _add(tree, -1, groups)
    return groups


def _add(tree: GroupTree, parent: int, groups: list[FlatGroup]) -> int:
    index = len(groups)
    depth = groups[parent].depth + 1 if index else 0
    counts = tree.kind not in {"repeat", "iteration", "page", "step", "graph", "compiled"}
    module_depth = groups[parent].module_depth + counts if index else 0
    group = FlatGroup(tree, parent, depth, module_depth, [], sorted(tree.all_nodes()))
    groups.append(group)
    group.children = [_add(child, index, groups) for child in tree.groups]
    return index


def lay_out_groups(groups: list[FlatGroup], folded: FoldedGraph) -> list[GroupLayout]:
    """Return the layout of every group."""
    edges = [GroupEdges(group.parent, list(group.tree.nodes), group.children) for group in groups]
    return EdgeRouter(edges, folded.edges, [node.order for node in folded.nodes]).layouts()


def find_alone(layouts: list[GroupLayout]) -> set[tuple[CellKind, int]]:
    """Return the nodes and groups that are alone in their row."""
    alone: set[tuple[CellKind, int]] = set()
    for layout in layouts:
        for row in layout.rows:
            solid = [layout.cells[i] for i in row if layout.cells[i].kind in {"node", "group"}]
            if len(solid) == 1:
                alone.add((solid[0].kind, solid[0].ref))
    return alone


def find_node_places(
    groups: list[FlatGroup], alone: set[tuple[CellKind, int]], count: int
) -> list[NodePlace]:
    """Return the place of every node, by node index."""
    places = [NodePlace(0, alone=False, path="")] * count
    for index, group in enumerate(groups):
        for node in group.tree.nodes:
            places[node] = NodePlace(index, ("node", node) in alone, group.tree.path)
    return places
