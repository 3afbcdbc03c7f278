"""Groups: modules, checkpoint regions that are no module, and runs of identical blocks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from autogradviz.scene.connected_components import number_graphs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from autogradviz.analysis.types import Region
    from autogradviz.scene.fold import FoldedGraph
    from autogradviz.scene.schema import GroupKind

MIN_RUN: Final = 2
MIN_BLOCK_NODES: Final = 2
PAGE: Final = 1_000
"""Boxes in one group at most; where there are more, they come in pages."""

Part: TypeAlias = "str | int"
"""One step of a way into groups: part of a module's name, or a region's id.

A way into one of several separate graphs begins with its number, negative.
"""


@dataclass(slots=True)
class Tree:
    """One group and what it holds."""

    kind: GroupKind
    path: str  # the module's qualified name
    region: Region | None = None  # the checkpoint region that it is, wholly
    nodes: list[int] = field(default_factory=list)  # in creation order
    groups: list[Tree] = field(default_factory=list)
    by_part: dict[Part, Tree] = field(default_factory=dict)
    label: str = ""  # of a page, "1–1,000 of 5,009"; of a graph, "graph 2"

    def all_nodes(self) -> list[int]:
        """Return the nodes in this group and in the groups in it."""
        nodes = list(self.nodes)
        for group in self.groups:
            nodes += group.all_nodes()
        return nodes

    def oldest(self) -> int:
        """Return the first node, in creation order."""
        return min(self.all_nodes())


def build_tree(folded: FoldedGraph, regions: Sequence[Region], stays_apart: set[int]) -> Tree:
    """Return the root of all groups.

    Args:
        folded: the drawn graph.
        regions: the checkpoint regions of the trace.
        stays_apart: nodes whose blocks are left out of runs.
    """
    ways: list[list[Part]] = [
        [*([-number] if number else []), *(node.module.split(".") if node.module else [])]
        for node, number in zip(folded.nodes, number_graphs(folded), strict=True)
    ]
    whole = _mark_regions(folded, regions, ways)
    root = Tree("root", "")
    seen: set[tuple[Part, ...]] = set()
    last: list[Part] = []
    for index, way in enumerate(ways):
        if way != last and tuple(way) in seen:
            _start_new_call_group(root, way, last)
        _grow(root, way, regions, whole).nodes.append(index)
        seen.add(tuple(way))
        last = way
    while not root.nodes and len(root.groups) == 1 and root.groups[0].region is None:
        root = root.groups[0]
        root.kind = "root"
    _inline_trivial_groups(root)
    _join_runs(root, _Shapes(folded), stays_apart)
    _paginate(root)
    return root


def _mark_regions(
    folded: FoldedGraph, regions: Sequence[Region], ways: list[list[Part]]
) -> dict[tuple[Part, ...], Region]:
    """Return the modules that are whole regions; put the other regions into the nodes' ways."""
    parents = {region.region_id: region.parent_region_id for region in regions}
    members: dict[int, list[int]] = {region.region_id: [] for region in regions}
    for index, node in enumerate(folded.nodes):
        region_id = node.region_id
        while region_id is not None and region_id in members:
            members[region_id].append(index)
            region_id = parents[region_id]
    modules = [tuple(way) for way in ways]
    sizes: dict[tuple[Part, ...], int] = {}
    for way in modules:
        for depth in range(len(way) + 1):
            sizes[way[:depth]] = sizes.get(way[:depth], 0) + 1
    whole: dict[tuple[Part, ...], Region] = {}
    for region in regions:
        nodes = members[region.region_id]
        if not nodes:
            continue
        common = _common_way([modules[i] for i in nodes])
        named = common and isinstance(common[-1], str)
        if named and sizes[common] == len(nodes):
            whole.setdefault(common, region)
            continue
        for i in nodes:
            before = sum(isinstance(part, int) and part >= 0 for part in ways[i])
            ways[i].insert(len(common) + before, region.region_id)
    return whole


def _common_way(ways: Iterable[tuple[Part, ...]]) -> tuple[Part, ...]:
    ways = list(ways)
    first, last = min(ways, key=_sortable), max(ways, key=_sortable)
    depth = 0
    while depth < min(len(first), len(last)) and first[depth] == last[depth]:
        depth += 1
    return first[:depth]


def _sortable(way: tuple[Part, ...]) -> tuple[str, ...]:
    return tuple(map(str, way))


def _grow(
    root: Tree,
    way: Iterable[Part],
    regions: Sequence[Region],
    whole: dict[tuple[Part, ...], Region],
) -> Tree:
    """Return the group at the end of a way; make what is missing."""
    tree = root
    modules: tuple[Part, ...] = ()
    for part in way:
        modules += (part,) if isinstance(part, str) or part < 0 else ()
        child = tree.by_part.get(part)
        if child is None:
            if isinstance(part, int) and part < 0:
                child = Tree("graph", "", label=f"graph {-part}")
            elif isinstance(part, int):
                region = next(r for r in regions if r.region_id == part)
                child = Tree("region", tree.path, region)
            else:
                path = f"{tree.path}.{part}" if tree.path else part
                child = Tree("module", path, whole.get(modules))
            tree.by_part[part] = child
            tree.groups.append(child)
        tree = child
    return tree


def _start_new_call_group(root: Tree, way: Sequence[Part], last: Sequence[Part]) -> None:
    """Give a module that is called once more a group of its own for each call.

    Nodes come in creation order, so a call's nodes follow each other. One group of several
    calls would run in a circle with what happens between them.
    """
    tree = root
    for depth, part in enumerate(way):
        if depth >= len(last) or last[depth] != part:
            tree.by_part.pop(part, None)
            return
        tree = tree.by_part[part]


def _inline_trivial_groups(tree: Tree) -> None:
    """Give groups up that say nothing, or would run in a circle with what is around them.

    A module of one node is that node. A container (``nn.ModuleList``) is never called itself;
    where others work between the modules in it, these stand in the container's place.
    """
    kept: list[Tree] = []
    for group in tree.groups:
        _inline_trivial_groups(group)
        if group.region is not None:
            kept.append(group)
        elif not group.groups and len(group.nodes) == 1:
            tree.nodes += group.nodes
        elif not group.nodes and not _is_unbroken(group):
            kept += group.groups
        else:
            kept.append(group)
    tree.nodes.sort()
    tree.groups = sorted(kept, key=Tree.oldest)


def _is_unbroken(group: Tree) -> bool:
    """Return whether a group's nodes were created one after the other."""
    nodes = group.all_nodes()
    return max(nodes) - min(nodes) + 1 == len(nodes)


def _join_runs(tree: Tree, shapes: _Shapes, stays_apart: set[int]) -> None:
    """Put numbered neighbors of one structure into a group of their own."""
    for group in tree.groups:
        _join_runs(group, shapes, stays_apart)
    numbered = [g.kind == "graph" or _is_numbered(g) for g in tree.groups]
    if sum(numbered) < MIN_RUN:
        return
    joined: list[Tree] = []
    run: list[Tree] = []
    last: object = None
    for group, is_numbered in zip(tree.groups, numbered, strict=True):
        shape = shapes.of(group) if is_numbered else None
        apart = shape is None or not stays_apart.isdisjoint(group.all_nodes())
        if apart or shape != last or not _touch(run[-1], group, tree.nodes):
            joined += _as_group(run)
            run = []
        if apart:
            joined.append(group)
        else:
            run.append(group)
        last = None if apart else shape
    tree.groups = joined + _as_group(run)


def _is_numbered(group: Tree) -> bool:
    return group.kind == "module" and group.path.split(".")[-1].isdigit()


def _touch(before: Tree, after: Tree, nodes: list[int]) -> bool:
    """Return whether none of the parent's own nodes, in order, was created between two groups."""
    low, high = max(before.all_nodes()), after.oldest()
    return bisect_right(nodes, low) >= bisect_left(nodes, high)


def _as_group(run: list[Tree]) -> list[Tree]:
    if len(run) < MIN_RUN:
        return list(run)
    return [Tree("repeat", run[0].path, groups=list(run))]


def _paginate(tree: Tree) -> None:
    """Put what is in too long a group into groups of their own, in order of creation."""
    for group in tree.groups:
        _paginate(group)
    count = len(tree.nodes) + len(tree.groups)
    if count <= PAGE:
        return
    inside: list[tuple[int, Tree | None]] = [(node, None) for node in tree.nodes]
    inside += [(group.oldest(), group) for group in tree.groups]
    inside.sort(key=lambda each: each[0])
    tree.nodes, tree.groups = [], []
    for start in range(0, count, PAGE):
        part = inside[start : start + PAGE]
        tree.groups.append(
            Tree(
                "page",
                tree.path,
                nodes=[node for node, group in part if group is None],
                groups=[group for _, group in part if group is not None],
                label=f"{start + 1:,}–{start + len(part):,} of {count:,}",
            )
        )


class _Shapes:
    """What makes two blocks identical: ops, shapes, states, saved slots, leaves and edges."""

    def __init__(self, folded: FoldedGraph) -> None:
        self._folded = folded
        self._targets: list[list[tuple[int, int]]] = [[] for _ in folded.nodes]
        for source, target, views in folded.edges:
            self._targets[source].append((target, views))

    def of(self, tree: Tree) -> object:
        """Return something that is equal for identical blocks; None for one too small."""
        nodes = sorted(tree.all_nodes())
        if len(nodes) < MIN_BLOCK_NODES:
            return None
        place = {node: i for i, node in enumerate(nodes)}
        return tree.region is None, tuple(
            (
                self._node(node),
                tuple((place[t], views) for t, views in self._targets[node] if t in place),
            )
            for node in nodes
        )

    def _node(self, index: int) -> object:
        node = self._folded.nodes[index]
        shapes = () if node.op is None else tuple(tensor.shape for tensor in node.op.outputs)
        saved = tuple((s.slot, s.tensor.shape, s.packed_by) for s in node.saved)
        leaves = tuple(
            leaf.parameter.tensor.shape
            for leaf in self._folded.leaves[index]
            if leaf.parameter is not None
        )
        return node.name, node.state, shapes, saved, leaves
