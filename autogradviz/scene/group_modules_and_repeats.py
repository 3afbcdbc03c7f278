"""Grouping of nodes: modules, checkpoint regions, runs of identical blocks, pages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

from autogradviz.scene.fold_loops import fold_loops
from autogradviz.scene.group_tree_components_and_cycles import (
    SECTIONS,
    GroupTree,
    Part,
    Section,
    place_graphs,
    split_cycles,
)
from autogradviz.scene.label_text_and_width import last_part, range_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from autogradviz.analysis.types import Region
    from autogradviz.scene.fold_leaves_and_views import FoldedGraph
    from autogradviz.scene.group_tree_components_and_cycles import GraphPlace

MIN_RUN: Final = 2
MIN_BLOCK_NODES: Final = 2
PAGE: Final = 1_000
"""Maximum number of boxes in one group. The boxes of a larger group are split into pages."""


def group_nodes(
    folded: FoldedGraph,
    regions: Sequence[Region],
    never_join: set[int],
    compiled: Mapping[int, str] | None = None,
    step_of: Sequence[int | None] | None = None,
    detached: Mapping[int, int] | None = None,
    shown_step: int | None = None,
) -> GroupTree:
    """Return the root group with all groups below it.

    Args:
        folded: the drawn graph.
        regions: the checkpoint regions of the trace.
        never_join: nodes whose blocks do not join runs.
        compiled: names of compiled regions by their nodes. Each node gets a group of its own, in
            which its region is drawn.
        step_of: the numbers of the steps that created the nodes.
        detached: lines that detach what nodes read: a block with one is not like others.
        shown_step: the number of the step that represents a run of steps.
    """
    places = place_graphs(folded, step_of or [None] * len(folded.nodes))
    paths: list[list[Part]] = [
        [*_sections(place), *(node.module.split(".") if node.module else [])]
        for node, place in zip(folded.nodes, places, strict=True)
    ]
    region_of_module = _insert_regions(folded, regions, paths)
    tree = root = GroupTree("root", "")
    seen: set[tuple[Part, ...]] = set()
    last: list[Part] = []
    for index, path in enumerate(paths):
        if path != last:
            if tuple(path) in seen:
                _start_new_call_group(root, path, last)
            tree = _get_or_create(root, path, regions, region_of_module)
            seen.add(tuple(path))
            last = path
        tree.nodes.append(index)
    while not root.nodes and len(root.groups) == 1 and root.groups[0].region is None:
        root = root.groups[0]
        root.kind = "root"
    compiled = compiled or {}
    _inline_trivial_groups(root, compiled)
    split_cycles(root, folded)
    keys = _BlockKeys(folded, compiled, detached or {})
    _join_runs(root, keys, never_join, f"step {shown_step}")
    fold_loops(root, keys.loop_key, never_join)
    _paginate(root)
    if compiled:
        _wrap_compiled(root, compiled)
    return root


def _sections(place: GraphPlace) -> Iterator[Section]:
    if place.step is not None:
        yield Section("step", place.step)
    if place.number:
        yield Section("graph", place.number)


def _wrap_compiled(tree: GroupTree, names: Mapping[int, str]) -> None:
    """Put each node of a compiled region into a group."""
    for group in tree.groups:
        _wrap_compiled(group, names)
    found = [node for node in tree.nodes if node in names]
    if found:
        tree.nodes = [node for node in tree.nodes if node not in names]
        tree.groups += [
            GroupTree("compiled", "", nodes=[node], label=names[node]) for node in found
        ]
        tree.groups.sort(key=GroupTree.position)


def _insert_regions(
    folded: FoldedGraph, regions: Sequence[Region], paths: list[list[Part]]
) -> dict[tuple[Part, ...], Region]:
    """Return the modules that are entire regions. Insert the other regions into the paths."""
    parents = {region.region_id: region.parent_region_id for region in regions}
    members: dict[int, list[int]] = {region.region_id: [] for region in regions}
    for index, node in enumerate(folded.nodes):
        region_id = node.region_id
        while region_id is not None and region_id in members:
            members[region_id].append(index)
            region_id = parents[region_id]
    modules = [tuple(path) for path in paths]
    sizes: dict[tuple[Part, ...], int] = {}
    for module in modules:
        for depth in range(len(module) + 1):
            sizes[module[:depth]] = sizes.get(module[:depth], 0) + 1
    region_of_module: dict[tuple[Part, ...], Region] = {}
    for region in regions:
        nodes = members[region.region_id]
        if not nodes:
            continue
        common = _common_prefix([modules[i] for i in nodes])
        named = common and isinstance(common[-1], str)
        if named and sizes[common] == len(nodes):
            region_of_module.setdefault(common, region)
            continue
        for i in nodes:
            regions_before = sum(isinstance(part, int) for part in paths[i])
            paths[i].insert(len(common) + regions_before, region.region_id)
    return region_of_module


def _common_prefix(paths: Sequence[tuple[Part, ...]]) -> tuple[Part, ...]:
    first = min(paths, key=lambda path: tuple(map(str, path)))
    last = max(paths, key=lambda path: tuple(map(str, path)))
    depth = 0
    while depth < min(len(first), len(last)) and first[depth] == last[depth]:
        depth += 1
    return first[:depth]


def _get_or_create(
    root: GroupTree,
    path: Iterable[Part],
    regions: Sequence[Region],
    region_of_module: dict[tuple[Part, ...], Region],
) -> GroupTree:
    """Return the group at the end of a path. Create missing groups on the way."""
    tree = root
    module: tuple[Part, ...] = ()
    for part in path:
        module += () if isinstance(part, int) else (part,)
        child = tree.by_part.get(part)
        if child is None:
            if isinstance(part, Section):
                child = GroupTree(part.kind, "", label=f"{part.kind} {part.number}")
            elif isinstance(part, int):
                region = next(r for r in regions if r.region_id == part)
                child = GroupTree("region", tree.path, region)
            else:
                name = f"{tree.path}.{part}" if tree.path else part
                child = GroupTree("module", name, region_of_module.get(module))
            tree.by_part[part] = child
            tree.groups.append(child)
        tree = child
    return tree


def _start_new_call_group(root: GroupTree, path: Sequence[Part], last: Sequence[Part]) -> None:
    """Detach the group of a module's previous call, so that the next call gets its own group.

    Nodes are added in creation order, so the nodes of one call are consecutive. One group for
    several calls would form a cycle with the nodes created between the calls.
    """
    tree = root
    for depth, part in enumerate(path):
        if depth >= len(last) or last[depth] != part:
            tree.by_part.pop(part, None)
            return
        tree = tree.by_part[part]


def _inline_trivial_groups(tree: GroupTree, compiled: Mapping[int, str]) -> None:
    """Inline groups that add no information or would create a cycle between groups.

    A module of one node becomes that node, unless it is a numbered block whose node is a compiled
    region: identical ones are joined. A container (``nn.ModuleList``) is never called itself:
    if other nodes were created between those of its modules, the modules replace the container.
    """
    kept: list[GroupTree] = []
    for group in tree.groups:
        _inline_trivial_groups(group, compiled)
        is_compiled = _is_numbered(group) and not compiled.keys().isdisjoint(group.nodes)
        if group.region is not None or is_compiled:
            kept.append(group)
        elif not group.groups and len(group.nodes) == 1:
            tree.nodes += group.nodes
        elif not group.nodes and not _is_contiguous(group):
            kept += group.groups
        else:
            kept.append(group)
    tree.nodes.sort()
    tree.groups = sorted(kept, key=GroupTree.position)


def _is_contiguous(group: GroupTree) -> bool:
    """Return whether the nodes of a group are consecutive in creation order."""
    nodes = group.all_nodes()
    return max(nodes) - min(nodes) + 1 == len(nodes)


def _join_runs(tree: GroupTree, keys: _BlockKeys, never_join: set[int], shown: str) -> None:
    """Replace consecutive numbered groups of identical structure by one group that holds them."""
    for group in tree.groups:
        _join_runs(group, keys, never_join, shown)
    _join_children(tree, keys, never_join, shown)
    if tree.kind == "module" and tree.region is None and not tree.nodes and len(tree.groups) == 1:
        run = tree.groups[0]
        if run.kind == "repeat":  # a container of one run is drawn as the run
            ends = run.first, run.last
            tree.groups, tree.count = run.groups, run.count
            tree.label = range_label(*(last_part(block.path) for block in ends))


def _join_children(tree: GroupTree, keys: _BlockKeys, never_join: set[int], shown: str) -> None:
    numbered = [g.kind in SECTIONS or _is_numbered(g) for g in tree.groups]
    if sum(numbered) < MIN_RUN:
        return
    joined: list[GroupTree] = []
    run: list[GroupTree] = []
    last: object = None
    for group, is_numbered in zip(tree.groups, numbered, strict=True):
        key = keys.of(group) if is_numbered else None
        single = key is None or not never_join.isdisjoint(group.all_nodes())
        if single or key != last or not _are_adjacent(run[-1], group, tree.nodes):
            joined += _as_group(run, shown)
            run = []
        if single:
            joined.append(group)
        else:
            run.append(group)
        last = None if single else key
    tree.groups = joined + _as_group(run, shown)


def _is_numbered(group: GroupTree) -> bool:
    return group.kind == "module" and group.path.split(".")[-1].isdigit()


def _are_adjacent(before: GroupTree, after: GroupTree, nodes: list[int]) -> bool:
    """Return whether none of the parent's nodes (sorted) was created between two groups."""
    low, high = max(before.all_nodes()), after.oldest()
    return bisect_right(nodes, low) >= bisect_left(nodes, high)


def _as_group(run: list[GroupTree], shown: str) -> list[GroupTree]:
    """Return a run as a group: the block that represents it, and one group on each side of it."""
    if len(run) < MIN_RUN:
        return list(run)
    steps = (at for at, group in enumerate(run) if group.kind == "step" and group.label == shown)
    at = next(steps, 0)
    groups = [*_joined(run[:at]), run[at], *_joined(run[at + 1 :])]
    return [GroupTree("repeat", run[0].path, groups=groups, count=len(run))]


def _joined(run: list[GroupTree]) -> list[GroupTree]:
    if len(run) < MIN_RUN:
        return run
    return [GroupTree("repeat", run[0].path, groups=run, count=len(run))]


def _paginate(tree: GroupTree) -> None:
    """Split the contents of large groups into pages, in creation order."""
    for group in tree.groups:
        _paginate(group)
    count = len(tree.nodes) + len(tree.groups)
    if count <= PAGE:
        return
    contents: list[tuple[int, GroupTree | None]] = [(node, None) for node in tree.nodes]
    contents += [(group.oldest(), group) for group in tree.groups]
    contents.sort(key=lambda item: item[0])
    tree.nodes, tree.groups = [], []
    for start in range(0, count, PAGE):
        page = contents[start : start + PAGE]
        tree.groups.append(
            GroupTree(
                "page",
                tree.path,
                nodes=[node for node, group in page if group is None],
                groups=[group for _, group in page if group is not None],
                label=f"{start + 1:,}–{start + len(page):,} of {count:,}",
            )
        )


class _BlockKeys:
    """Keys that are equal for identical blocks: ops, shapes, states, slots, leaves, edges.

    A compiled region counts as many ops: a block with it is compared even if it is one node.
    """

    def __init__(
        self, folded: FoldedGraph, compiled: Mapping[int, str], detached: Mapping[int, int]
    ) -> None:
        self._detached = detached
        self._folded = folded
        self._compiled = compiled
        self._targets: list[list[tuple[int, int]]] = [[] for _ in folded.nodes]
        self._loop_keys: dict[int, int] = {}  # by node
        self._numbers: dict[object, int] = {}
        for source, target, views in folded.edges:
            self._targets[source].append((target, views))

    def of(self, tree: GroupTree) -> object:
        """Return the key of a block, None if it has too few nodes."""
        nodes = sorted(tree.all_nodes())
        if len(nodes) < MIN_BLOCK_NODES and self._compiled.keys().isdisjoint(nodes):
            return None
        position = {node: i for i, node in enumerate(nodes)}
        return tree.region is None, tuple(
            (
                self._node_key(node),
                tuple((position[t], views) for t, views in self._targets[node] if t in position),
            )
            for node in nodes
        )

    def loop_key(self, index: int) -> int:
        """Return a number that is equal for the same node of two iterations of a loop."""
        found = self._loop_keys.get(index)
        if found is None:
            node = self._folded.nodes[index]
            shapes = () if node.op is None else tuple([tensor.shape for tensor in node.op.outputs])
            place = node.location
            key = node.name, node.module, shapes, place and (place.filename, place.lineno)
            found = self._loop_keys[index] = self._numbers.setdefault(key, len(self._numbers))
        return found

    def _node_key(self, index: int) -> object:
        node = self._folded.nodes[index]
        shapes = () if node.op is None else tuple(tensor.shape for tensor in node.op.outputs)
        saved = tuple((s.slot, s.tensor.shape, s.packed_by) for s in node.saved)
        leaves = tuple(
            leaf.parameter.tensor.shape
            for leaf in self._folded.leaves[index]
            if leaf.parameter is not None
        )
        apart = self._compiled.get(index), self._detached.get(index)
        return node.name, node.state, shapes, saved, leaves, *apart
