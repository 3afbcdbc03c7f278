"""Groups with their layouts, sizes and states, and which of them are open at first."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from autogradviz.scene.schema import SceneGroup, SceneNode
from autogradviz.scene.widths import elide, text_width
from autogradviz.scene.wire import Layout, Wirer, Wiring
from autogradviz.scene.words import last_part, plural

if TYPE_CHECKING:
    from autogradviz.model import Model
    from autogradviz.scene.boxes import Boxes
    from autogradviz.scene.fold import FoldedGraph
    from autogradviz.scene.schema import RunState
    from autogradviz.scene.tree import Tree

COLUMN_OP_WIDTH: Final = 84.0
COLUMN_NAME_WIDTH: Final = 180.0
"""Of boxes that are alone in their row: a column of equal boxes."""

MAX_VISIBLE: Final = 40
"""Boxes that a picture shows at first, about."""

LARGE: Final = 1_000
"""Nodes from which only the outermost modules show at first."""

MAX_LABEL: Final = 40


@dataclass(slots=True)
class _Group:
    """One group of the tree, numbered, parents first."""

    tree: Tree
    parent: int
    children: list[int]
    nodes: list[int]  # its own and those of the groups in it
    level: int  # modules around it; runs do not count


def draw_groups(
    tree: Tree, folded: FoldedGraph, boxes: Boxes, model: Model, *, depth: int | None
) -> tuple[tuple[SceneGroup, ...], tuple[SceneNode, ...]]:
    """Return all groups, the root first, and the nodes with their groups and final widths."""
    numbered: list[_Group] = []
    _number(tree, -1, numbered)
    wirings = [Wiring(g.parent, list(g.tree.nodes), g.children) for g in numbered]
    orders = [node.order for node in folded.nodes]
    layouts = Wirer(wirings, folded.edges, orders).layouts()
    alone = _alone(layouts)
    nodes = list(boxes.nodes)
    for index, group in enumerate(numbered):
        for node in group.tree.nodes:
            nodes[node] = _widen(nodes[node], index, alone=("node", node) in alone)
    opened = _opened(numbered, nodes, depth)
    types = {module.name: module.type_name for module in model.modules.values()}
    nbytes = _GroupBytes(boxes)
    groups = [
        _sized(
            _scene_group(index, numbered, nodes, layouts[index], types),
            nbytes=nbytes.of(numbered[index].nodes),
            is_open=index in opened,
            alone=("group", index) in alone,
        )
        for index in range(len(numbered))
    ]
    return tuple(groups), tuple(nodes)


def _number(tree: Tree, parent: int, numbered: list[_Group]) -> int:
    index = len(numbered)
    level = numbered[parent].level + (tree.kind != "repeat") if index else 0
    group = _Group(tree, parent, [], sorted(tree.all_nodes()), level)
    numbered.append(group)
    group.children = [_number(child, index, numbered) for child in tree.groups]
    return index


def _alone(layouts: list[Layout]) -> set[tuple[str, int]]:
    """Return the nodes and groups that share their row with none."""
    alone = set()
    for layout in layouts:
        for row in layout.rows:
            solid = [layout.cells[i] for i in row if layout.cells[i].kind in ("node", "group")]
            if len(solid) == 1:
                alone.add((solid[0].kind, solid[0].ref))
    return alone  # type: ignore[return-value]


def _widen(node: SceneNode, group: int, *, alone: bool) -> SceneNode:
    """Return a node in its group; boxes of a column are of one width."""
    if not alone or node.compact:
        return replace(node, group=group)
    op_width = max(node.op_width, COLUMN_OP_WIDTH) if node.op else 0.0
    least = COLUMN_NAME_WIDTH if node.op else COLUMN_OP_WIDTH + COLUMN_NAME_WIDTH
    return replace(node, group=group, op_width=op_width, name_width=max(node.name_width, least))


def _scene_group(
    index: int,
    numbered: list[_Group],
    nodes: list[SceneNode],
    layout: Layout,
    types: dict[str, str],
) -> SceneGroup:
    group = numbered[index]
    tree, region = group.tree, group.tree.region
    label, type_name = _names(tree, types)
    return SceneGroup(
        index=index,
        parent=group.parent,
        kind=tree.kind,
        label=label,
        type_name=type_name,
        path=tree.path,
        depth=0 if not index else _depth(index, numbered),
        node_count=len(group.nodes),
        nbytes=0,
        repeat=len(tree.groups) if tree.kind == "repeat" else 1,
        checkpointed=region is not None or _all_checkpointed(tree),
        recomputes=len(region.recomputations) if region else _run_recomputes(tree),
        state=_state([nodes[i] for i in group.nodes]),
        error=any(nodes[i].error for i in group.nodes),
        open=False,
        width=0.0,
        header_width=0.0,
        left_width=0.0,
        right_width=0.0,
        cells=layout.cells,
        rows=layout.rows,
        links=layout.links,
    )


def _names(tree: Tree, types: dict[str, str]) -> tuple[str, str]:
    """Return a group's label and its type."""
    type_name = types.get(tree.path, "")
    if tree.kind == "region" and tree.region is not None:
        return elide(last_part(tree.region.function), MAX_LABEL), ""
    if tree.kind == "repeat":
        first, last = tree.groups[0].path, tree.groups[-1].path
        return elide(f"{last_part(first)} – {last_part(last)}", MAX_LABEL), type_name
    return elide(last_part(tree.path), MAX_LABEL) or type_name, type_name


def _depth(index: int, numbered: list[_Group]) -> int:
    depth = 0
    while index:
        index = numbered[index].parent
        depth += 1
    return depth


def _all_checkpointed(tree: Tree) -> bool:
    return tree.kind == "repeat" and all(block.region is not None for block in tree.groups)


def _run_recomputes(tree: Tree) -> int:
    """Return how often each block of a checkpointed run was recomputed, at most."""
    if tree.kind != "repeat":
        return 0
    regions = [block.region for block in tree.groups]
    return max((len(region.recomputations) for region in regions if region), default=0)


def _state(nodes: list[SceneNode]) -> RunState:
    states = {node.state for node in nodes}
    if "failed" in states:
        return "failed"
    return "ran" if "ran" in states else "not_run"


class _GroupBytes:
    """Bytes that nodes keep, every storage once; what a checkpoint gave up does not count."""

    def __init__(self, boxes: Boxes) -> None:
        self._kept: dict[int, list[tuple[int, int]]] = {}
        for chip in boxes.chips:
            if chip.packed_by not in {"checkpoint", "offload"}:
                key = -1 - chip.saved_id if chip.storage_id is None else chip.storage_id
                self._kept.setdefault(chip.node, []).append((key, chip.nbytes))

    def of(self, nodes: list[int]) -> int:
        """Return the bytes that some nodes keep."""
        storages: dict[int, int] = {}
        for node in nodes:
            for key, nbytes in self._kept.get(node, ()):
                storages[key] = max(storages.get(key, 0), nbytes)
        return sum(storages.values())


def _sized(group: SceneGroup, *, nbytes: int, is_open: bool, alone: bool) -> SceneGroup:
    """Return a group with its widths, closed and open."""
    label = text_width(group.label, 12.5, bold=True)
    pills = text_width(f"×{group.repeat} identical", 10.0) + 24 if group.repeat > 1 else 0.0
    pills += 40 if group.checkpointed else 0.0
    width = 20 + label + 8 + pills + 10 + text_width(plural(group.node_count, "node"), 10.5) + 10
    column = COLUMN_OP_WIDTH + COLUMN_NAME_WIDTH if alone else 0.0
    header = 30 + label + 8 + text_width(header_note(group), 11.5) + 12
    return replace(
        group, nbytes=nbytes, open=is_open, width=max(width, column), header_width=header
    )


def header_note(group: SceneGroup) -> str:
    """Return the words behind the label of an open group."""
    words = [] if group.type_name == group.label else [group.type_name]
    if group.repeat > 1:
        words.append(f"×{group.repeat} identical")
    elif group.checkpointed:
        words.append("checkpoint region")
    return " · ".join(word for word in words if word)


def _opened(numbered: list[_Group], nodes: list[SceneNode], depth: int | None) -> set[int]:
    """Return the groups that are open at first."""
    if depth is not None:
        return {i for i, group in enumerate(numbered) if group.level < depth or not i}
    opened = {0} | {
        i
        for i, group in enumerate(numbered)
        if group.tree.kind != "repeat" and any(nodes[n].error for n in group.nodes)
    }
    if len(nodes) > LARGE:
        return opened
    visible = sum(len(g.tree.nodes) + len(g.children) - 1 for g in (numbered[i] for i in opened))
    waiting = [
        (-len(numbered[child].nodes), child)
        for i in opened
        for child in numbered[i].children
        if child not in opened
    ]
    heapq.heapify(waiting)
    while waiting:
        index = heapq.heappop(waiting)[1]
        group = numbered[index]
        more = len(group.tree.nodes) + len(group.children) - 1
        if group.tree.kind == "repeat" or visible + more > MAX_VISIBLE:
            continue
        visible += more
        opened.add(index)
        for child in group.children:
            heapq.heappush(waiting, (-len(numbered[child].nodes), child))
    return opened
