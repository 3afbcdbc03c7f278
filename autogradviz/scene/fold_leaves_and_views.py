"""Folding of the graph for drawing: leaves become badges, view chains become counts on edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import plural
from autogradviz.compiled_graphs.read_graph_text import is_view_node

if TYPE_CHECKING:
    from collections.abc import Collection

    from autogradviz.analysis.types import Graph, Node


@dataclass(frozen=True, slots=True)
class FoldedGraph:
    """Drawn nodes in creation order; edges and leaves refer to them by index."""

    nodes: list[Node]
    index_of: dict[int, int]  # by node id
    edges: list[tuple[int, int, int]]  # source, target, number of folded views
    leaves: list[list[Node]]  # by drawn node, the AccumulateGrad nodes that it uses
    users: dict[int, int]  # number of drawn nodes that use a leaf, by its node id
    count: int = 0  # of all nodes, also those that are not drawn


def fold_graph(graph: Graph, keep: Collection[int] = ()) -> FoldedGraph:
    """Return the graph without leaves, views of leaves, and chains of views.

    Args:
        graph: the autograd graph.
        keep: ids of nodes that are never folded.
    """
    return _Fold(graph, keep).result()


def describe_folded(folded: FoldedGraph) -> str:
    """Return the nodes without a box in words: "77 leaves as badges, 166 views on edges"."""
    leaves = len(folded.users)
    views = folded.count - len(folded.nodes) - leaves
    parts = [f"{leaves:,} {'leaf' if leaves == 1 else 'leaves'} as badges"] if leaves else []
    if views:
        parts.append(f"{plural(views, 'view')} on edges")
    return ", ".join(parts)


class _Fold:
    def __init__(self, graph: Graph, keep: Collection[int]) -> None:
        self._nodes = graph.nodes
        self._next: dict[int, list[int]] = {node_id: [] for node_id in graph.nodes}
        self._users: dict[int, list[int]] = {node_id: [] for node_id in graph.nodes}
        for edge in graph.edges:
            self._next[edge.source].append(edge.target)
            self._users[edge.target].append(edge.source)
        self._kept = {*graph.roots, *keep}
        self._on_leaf: set[int] = set()  # leaves with users, and views of them

    def result(self) -> FoldedGraph:
        leaves_of = self._attach_leaves()
        drawn = [n for i, n in self._nodes.items() if i not in self._on_leaf and not self._folds(i)]
        drawn.sort(key=lambda node: node.order)
        index_of = {node.node_id: i for i, node in enumerate(drawn)}
        edges = []
        for i, node in enumerate(drawn):
            for target in self._next[node.node_id]:
                end, views = self._follow(target)
                if end in index_of:
                    edges.append((i, index_of[end], views))
        leaves = [leaves_of.get(node.node_id, []) for node in drawn]
        users: dict[int, int] = {}
        for leaf in (leaf for row in leaves for leaf in row):
            users[leaf.node_id] = users.get(leaf.node_id, 0) + 1
        return FoldedGraph(drawn, index_of, edges, leaves, users, len(self._nodes))

    def _attach_leaves(self) -> dict[int, list[Node]]:
        """Return the leaves that each node uses, directly or through views of only that leaf."""
        leaves_of: dict[int, list[Node]] = {}
        added: set[tuple[int, int]] = set()
        for leaf in self._nodes.values():
            if leaf.parameter is None or not self._users[leaf.node_id]:
                continue
            self._on_leaf.add(leaf.node_id)
            stack = list(reversed(self._users[leaf.node_id]))
            while stack:
                user = stack.pop()
                if self._is_plain_view(user) and self._users[user]:
                    if user not in self._on_leaf:
                        self._on_leaf.add(user)
                        stack.extend(reversed(self._users[user]))
                    continue
                if (user, leaf.node_id) not in added:
                    added.add((user, leaf.node_id))
                    leaves_of.setdefault(user, []).append(leaf)
        return leaves_of

    def _is_plain_view(self, node_id: int) -> bool:
        """Return whether a node is a view with one input that may be folded."""
        node = self._nodes[node_id]
        return (
            len(self._next[node_id]) == 1
            and node_id not in self._kept
            and node.state != "failed"
            and not node.saved
            and is_view_node(node.name)
        )

    def _folds(self, node_id: int) -> bool:
        """Return whether a node becomes a count on an edge."""
        return len(self._users[node_id]) == 1 and self._is_plain_view(node_id)

    def _follow(self, node_id: int) -> tuple[int, int]:
        """Return the node at the end of a chain of views, and the length of the chain."""
        views = 0
        while self._folds(node_id) and node_id not in self._on_leaf:
            node_id = self._next[node_id][0]
            views += 1
        return node_id, views
