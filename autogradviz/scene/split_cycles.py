"""Splitting of groups that would form a cycle with nodes outside of them.

A module may be left and entered again: two lists of layers are used in turn, or a submodule is
called from outside of its parent. If something outside depends on the first part of such a group
and the second part depends on that, then one box for both would make gradients flow in a circle.
The group is split before the first node that closes a circle, so that each part is drawn where it
ran.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from autogradviz.scene.group_tree_type import GroupTree

if TYPE_CHECKING:
    from autogradviz.scene.fold_leaves_and_views import FoldedGraph


def split_cycles(root: GroupTree, folded: FoldedGraph) -> None:
    """Split the groups below a root where they would form cycles."""
    inputs: list[list[int]] = [[] for _ in folded.nodes]
    for source, target, _ in folded.edges:
        inputs[source].append(target)
    _split_children(root, inputs)


def _split_children(tree: GroupTree, inputs: list[list[int]]) -> None:
    kept: list[GroupTree] = []
    for group in tree.groups:
        _split_children(group, inputs)
        cuts = _find_cuts(group, inputs)
        if not cuts:
            kept.append(group)
            continue
        for part in _cut(group, cuts):
            if part.region is None and len(part.all_nodes()) == 1:
                tree.nodes += part.all_nodes()
            elif not part.nodes and len(part.groups) == 1 and part.region is None:
                kept += part.groups
            else:
                kept.append(part)
    tree.nodes.sort()
    tree.groups = sorted(kept, key=GroupTree.position)


def _find_cuts(group: GroupTree, inputs: list[list[int]]) -> list[int]:
    """Return the members before which a group must be split, in creation order."""
    nodes = sorted(group.all_nodes())
    if not nodes or nodes[-1] - nodes[0] + 1 == len(nodes):
        return []
    members = set(nodes)
    cuts: list[int] = []
    part: set[int] = set()  # members since the last cut
    outside: set[int] = set()  # other nodes that depend on them
    for index in range(nodes[0], nodes[-1] + 1):
        depends = not outside.isdisjoint(inputs[index])
        if index not in members:
            if depends or not part.isdisjoint(inputs[index]):
                outside.add(index)
            continue
        if depends:
            cuts.append(index)
            part, outside = set(), set()
        part.add(index)
    return cuts


def _cut(group: GroupTree, cuts: list[int]) -> list[GroupTree]:
    """Return a group's parts between cuts. A subgroup belongs to the part of its oldest node."""
    parts = []
    for low, high in zip([0, *cuts], [*cuts, sys.maxsize], strict=True):
        nodes = [node for node in group.nodes if low <= node < high]
        groups = [inner for inner in group.groups if low <= inner.oldest() < high]
        if nodes or groups:
            parts.append(GroupTree(group.kind, group.path, group.region, nodes, groups))
    return parts
