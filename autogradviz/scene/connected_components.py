"""Separate graphs of one recording: one a step, a micro-batch, a player's loss."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from autogradviz.scene.fold import FoldedGraph

MIN_NODES: Final = 3
"""Smaller ones need no group of their own."""


def number_graphs(folded: FoldedGraph) -> list[int]:
    """Return the number of each node's graph, the oldest is 1; 0 where it needs no name.

    Only graphs that run the same modules are told apart: without that, one group a module would
    hold parts of all of them.
    """
    part = _parts(folded)
    members: dict[int, list[int]] = defaultdict(list)
    for index, root in enumerate(part):
        members[root].append(index)
    users: dict[str, set[int]] = defaultdict(set)
    for root, nodes in members.items():
        if len(nodes) >= MIN_NODES:
            for index in nodes:
                users[folded.nodes[index].module].add(root)
    alike = {root for name, roots in users.items() if name and len(roots) > 1 for root in roots}
    number = {root: i for i, root in enumerate(sorted(alike, key=lambda r: members[r][0]), 1)}
    return [number.get(root, 0) for root in part]


def _parts(folded: FoldedGraph) -> list[int]:
    """Return for each node one that stands for all it hangs together with."""
    parent = list(range(len(folded.nodes)))

    def find(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    for source, target, _ in folded.edges:
        parent[find(source)] = find(target)
    return [find(index) for index in range(len(parent))]
