"""Connected components: the separate graphs of one recording (steps, micro-batches, losses)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.scene.fold_leaves_and_views import FoldedGraph

MIN_NODES: Final = 3
"""Smaller components get no group."""


def number_graphs(folded: FoldedGraph) -> list[int]:
    """Return the number of each node's graph; 0 if it needs no group.

    The graphs are numbered from 1 in the order in which their last nodes were created: those of
    the losses, on which backward is called.

    Only graphs that use the same modules are numbered: otherwise the group of such a module would
    contain nodes of several graphs.
    """
    component = representatives(
        len(folded.nodes), ((source, target) for source, target, _ in folded.edges)
    )
    members: dict[int, list[int]] = defaultdict(list)
    for index, root in enumerate(component):
        members[root].append(index)
    users: dict[str, set[int]] = defaultdict(set)
    for root, nodes in members.items():
        if len(nodes) >= MIN_NODES:
            for index in nodes:
                users[folded.nodes[index].module].add(root)
    shared = {root for name, roots in users.items() if name and len(roots) > 1 for root in roots}
    number = {root: i for i, root in enumerate(sorted(shared, key=lambda r: members[r][-1]), 1)}
    return [number.get(root, 0) for root in component]


def representatives(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Return one member of each node's connected component, for nodes from 0 to ``count`` - 1."""
    parent = list(range(count))

    def find(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    for source, target in edges:
        parent[find(source)] = find(target)
    return [find(index) for index in range(count)]
