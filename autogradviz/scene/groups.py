"""Groups with their layouts, sizes and states, and which of them are open at first."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from autogradviz.scene.formatting import last_part, plural
from autogradviz.scene.nodes import COLUMN_NAME_WIDTH, COLUMN_OP_WIDTH
from autogradviz.scene.schema import SceneGroup, SceneNode
from autogradviz.scene.text_metrics import elide, text_width

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis
    from autogradviz.scene.grouping import Tree
    from autogradviz.scene.layout.cross_group_edges import Layout
    from autogradviz.scene.layout.flatten import Level
    from autogradviz.scene.nodes import Boxes
    from autogradviz.scene.schema import CellKind, RunState

MAX_VISIBLE: Final = 40
"""Boxes that a picture shows at first, about."""

LARGE: Final = 1_000
"""Nodes from which only the outermost modules show at first."""

MAX_LABEL: Final = 40


def draw_groups(
    levels: list[Level],
    layouts: list[Layout],
    alone: set[tuple[CellKind, int]],
    boxes: Boxes,
    analysis: Analysis,
    *,
    depth: int | None,
) -> tuple[SceneGroup, ...]:
    """Return all groups, the root first."""
    opened = _opened(levels, boxes.nodes, depth)
    types = {module.name: module.type_name for module in analysis.modules.values()}
    nbytes = _GroupBytes(boxes)
    return tuple(
        _sized(
            _scene_group(index, level, boxes.nodes, layouts[index], types),
            nbytes=nbytes.of(level.nodes),
            is_open=index in opened,
            alone=("group", index) in alone,
        )
        for index, level in enumerate(levels)
    )


def _scene_group(
    index: int,
    level: Level,
    nodes: list[SceneNode],
    layout: Layout,
    types: dict[str, str],
) -> SceneGroup:
    tree, region = level.tree, level.tree.region
    label, type_name = _names(tree, types)
    if tree.kind == "graph":
        type_name = nodes[level.nodes[-1]].op
    return SceneGroup(
        index=index,
        parent=level.parent,
        kind=tree.kind,
        label=label,
        type_name=type_name,
        path=tree.path,
        depth=level.depth,
        node_count=len(level.nodes),
        nbytes=0,
        repeat=len(tree.groups) if tree.kind == "repeat" else 1,
        checkpointed=region is not None or _all_checkpointed(tree),
        recomputes=len(region.recomputations) if region else _run_recomputes(tree),
        state=_state([nodes[i] for i in level.nodes]),
        error=any(nodes[i].error for i in level.nodes),
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
    if tree.kind in {"page", "graph"}:
        return tree.label, ""
    if tree.kind == "repeat":
        first, last = (each.label or last_part(each.path) for each in _ends(tree.groups))
        return elide(f"{first} – {last}", MAX_LABEL), type_name
    return elide(last_part(tree.path), MAX_LABEL) or type_name, type_name


def _ends(trees: list[Tree]) -> tuple[Tree, Tree]:
    return trees[0], trees[-1]


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


def _opened(levels: list[Level], nodes: list[SceneNode], depth: int | None) -> set[int]:
    """Return the groups that are open at first."""
    if depth is not None:
        return {i for i, level in enumerate(levels) if level.module_depth < depth or not i}
    opened = {0}
    for i, level in enumerate(levels):
        if level.tree.kind != "repeat" and any(nodes[node].error for node in level.nodes):
            opened.add(i)
    if len(nodes) > LARGE:
        return opened
    visible = sum(_opening_adds(levels[i]) for i in opened)
    waiting: list[tuple[int, int]] = []  # the largest first
    for i in sorted(opened):
        _push_closed(waiting, levels, i, opened)
    while waiting:
        index = heapq.heappop(waiting)[1]
        more = _opening_adds(levels[index])
        if not _stays_folded(levels[index].tree) and visible + more <= MAX_VISIBLE:
            visible += more
            opened.add(index)
            _push_closed(waiting, levels, index, opened)
    return opened


def _stays_folded(tree: Tree) -> bool:
    """Return whether a group says enough while it is closed: blocks do, whole graphs do not."""
    return tree.kind == "repeat" and tree.groups[0].kind != "graph"


def _opening_adds(level: Level) -> int:
    """Return how many more boxes there are once a group is open."""
    return len(level.tree.nodes) + len(level.children) - 1


def _push_closed(
    waiting: list[tuple[int, int]], levels: list[Level], index: int, opened: set[int]
) -> None:
    for child in levels[index].children:
        if child not in opened:
            heapq.heappush(waiting, (-len(levels[child].nodes), child))
