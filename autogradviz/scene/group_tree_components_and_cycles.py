"""The tree of groups of a picture, the separate graphs in it, and groups split at cycles."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from autogradviz.scene.compiled.tables import node_to_open

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from autogradviz.analysis.compiled_region_types import CompiledRegion
    from autogradviz.analysis.types import Region
    from autogradviz.scene.fold_leaves_and_views import FoldedGraph
    from autogradviz.scene.schema import GroupKind


# --- the tree of groups that nodes are drawn in ---------------------------------------------------


class Section(NamedTuple):
    """The part of a path that leads into a step, or into one of several separate graphs."""

    kind: Literal["step", "graph"]
    number: int


Part: TypeAlias = "str | int | Section"
"""One part of a group path: part of a module's name, a region's id, or a section."""

SECTIONS: Final = frozenset({"step", "graph"})
"""The kinds of groups that sections lead to."""


@dataclass(slots=True)
class GroupTree:
    """One group with its nodes and its subgroups."""

    kind: GroupKind
    path: str  # the module's qualified name
    region: Region | None = None  # the checkpoint region that the entire group is
    nodes: list[int] = field(default_factory=list)  # in creation order
    groups: list[GroupTree] = field(default_factory=list)
    by_part: dict[Part, GroupTree] = field(default_factory=dict)
    label: str = ""  # "1–1,000 of 5,009", "graph 2", the ops of a loop, a compiled region's name
    count: int = 1  # number of identical blocks in a run

    def all_nodes(self) -> list[int]:
        """Return the nodes in this group and its subgroups."""
        nodes = list(self.nodes)
        for group in self.groups:
            nodes += group.all_nodes()
        return nodes

    @property
    def first(self) -> GroupTree:
        """The first block of a run, also if the blocks before another are a run of their own."""
        first = self.groups[0]
        return first.first if first.is_run_in(self) else first

    @property
    def last(self) -> GroupTree:
        """The last block of a run, also if the blocks behind another are a run of their own."""
        last = self.groups[-1]
        return last.last if last.is_run_in(self) else last

    def is_run_in(self, run: GroupTree) -> bool:
        """Return whether the group is a part of a run with several of its blocks."""
        return self.kind == "repeat" and run.count > self.count > 1

    def oldest(self) -> int:
        """Return the first node, in creation order."""
        return min(self.all_nodes())

    def position(self) -> int:
        """Return the node that places the group among others: the last of a separate graph."""
        return max(self.all_nodes()) if self.kind in SECTIONS else self.oldest()


# --- connected components -------------------------------------------------------------------------
#
# Connected components: the separate graphs of one recording (steps, micro-batches, losses).


MIN_NODES: Final = 3
"""Smaller components get no group."""

MIN_STEPS: Final = 2


class GraphPlace(NamedTuple):
    """The step of a node, and the number of its graph in the step."""

    step: int | None  # None if the graphs are not divided into steps
    number: int  # from 1; 0 if the graph needs no group of its own


def place_graphs(folded: FoldedGraph, step_of: Sequence[int | None]) -> list[GraphPlace]:
    """Return the place of each node.

    A graph belongs to the step in which its last node was created: that of the loss, on which
    backward is called. If it uses the same modules in several steps, as a sum of losses that is
    carried on, each of its nodes belongs to the step that created it.

    Only graphs that use the same modules are numbered, within each step by the order of their last
    nodes there: otherwise the group of such a module would contain nodes of several graphs. If
    they are of several steps, all nodes are divided into steps.

    Args:
        folded: the drawn graph.
        step_of: by drawn node, the number of the step that created it, None if it is unknown.
    """
    component = representatives(
        len(folded.nodes), ((source, target) for source, target, _ in folded.edges)
    )
    sizes = Counter(component)
    users: dict[str, set[int]] = defaultdict(set)
    for index, root in enumerate(component):
        if sizes[root] >= MIN_NODES:
            users[folded.nodes[index].module].add(root)
    shared = {root for name, roots in users.items() if name and len(roots) > 1 for root in roots}
    step_of = _steps_of_graphs(folded, component, step_of)
    used_in = {step_of[index] for index, root in enumerate(component) if root in shared}
    if len(used_in) < MIN_STEPS or None in step_of:
        step_of = [None] * len(folded.nodes)
    last: dict[tuple[int | None, int], int] = {}  # of each graph in each step
    for index, root in enumerate(component):
        if root in shared:
            last[step_of[index], root] = index
    count: Counter[int | None] = Counter()
    numbers: dict[tuple[int | None, int], int] = {}
    for place in sorted(last, key=last.__getitem__):
        count[place[0]] += 1
        numbers[place] = count[place[0]]
    return [
        GraphPlace(
            step, 0 if step is not None and count[step] == 1 else numbers.get((step, root), 0)
        )
        for step, root in zip(step_of, component, strict=True)
    ]


def _steps_of_graphs(
    folded: FoldedGraph, component: Sequence[int], step_of: Sequence[int | None]
) -> list[int | None]:
    """Return the steps of the nodes' graphs; of graphs that are carried on, those of the nodes."""
    last = {root: step_of[index] for index, root in enumerate(component)}
    first: dict[tuple[int, str], int | None] = {}  # step in which a graph first uses a module
    carried = set()
    for index, root in enumerate(component):
        module = folded.nodes[index].module
        if module and first.setdefault((root, module), step_of[index]) != step_of[index]:
            carried.add(root)
    return [
        step if root in carried else last[root]
        for step, root in zip(step_of, component, strict=True)
    ]


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


# --- splitting of groups that would form a cycle with nodes outside of them -----------------------
#
# A module may be left and entered again: two lists of layers are used in turn, or a submodule is
# called from outside of its parent. If something outside depends on the first part of such a group
# and the second part depends on that, then one box for both would make gradients flow in a circle.
# The group is split before the first node that closes a circle, so that each part is drawn where it
# ran.


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


# --- modules and compiled regions that a caller opens by name -------------------------------------


@dataclass(frozen=True, slots=True)
class OpenedParts:
    """Modules to open, by path, and nodes of compiled regions, by index."""

    modules: tuple[str, ...]
    compiled_nodes: frozenset[int]
    apart: frozenset[int]  # nodes whose blocks do not join a run of identical blocks


def find_opened(
    names: Collection[str],
    folded: FoldedGraph,
    regions: Sequence[CompiledRegion],
    region_of: Mapping[int, int],
) -> OpenedParts:
    """Return the modules and nodes that names stand for; modules come before regions.

    Args:
        names: paths of modules, and names of compiled regions.
        folded: the drawn graph.
        regions: the compiled regions of the recording.
        region_of: the position of the region that each node runs.

    Raises:
        ValueError: if a name stands for no node.
    """
    modules: dict[str, int] = {}
    compiled: set[int] = set()
    for name in names:
        node = _first_node(folded, name)
        if node is not None:
            modules[name] = node
            continue
        node = node_to_open(name, regions, region_of)
        if node is None:
            other = " and no compiled region has this name" if regions else ""
            message = f"no node of the graph belongs to a module {name!r}{other}"
            raise ValueError(message)
        compiled.add(node)
    apart = frozenset((*modules.values(), *compiled))
    return OpenedParts(tuple(modules), frozenset(compiled), apart)


def _first_node(folded: FoldedGraph, module: str) -> int | None:
    """Return the index of one node of a module, if possible not of a module inside it."""
    inside = [
        (node.module != module, index)
        for index, node in enumerate(folded.nodes)
        if f"{node.module}.".startswith(f"{module}.")
    ]
    return min(inside)[1] if inside else None
