"""Groups of the scene: layout, size and state, and the set of initially open groups."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from autogradviz.scene.label_text import last_part, plural
from autogradviz.scene.node_boxes import COLUMN_NAME_WIDTH, COLUMN_OP_WIDTH
from autogradviz.scene.schema import SceneGroup, SceneNode
from autogradviz.scene.text_metrics import elide, text_width

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis
    from autogradviz.analysis.saved_memory import SavedBytes
    from autogradviz.scene.fold_leaves_and_views import FoldedGraph
    from autogradviz.scene.group_modules_and_repeats import GroupTree
    from autogradviz.scene.layout.cross_group_edges import GroupLayout
    from autogradviz.scene.layout.flatten_group_tree import FlatGroup
    from autogradviz.scene.schema import CellKind, RunState

MAX_VISIBLE: Final = 40
"""Approximate number of boxes that are initially visible."""

LARGE: Final = 1_000
"""Number of nodes from which on only the outermost modules are initially visible."""

MAX_LABEL: Final = 40


def build_groups(
    groups: list[FlatGroup],
    layouts: list[GroupLayout],
    alone: set[tuple[CellKind, int]],
    nodes: list[SceneNode],
    folded: FoldedGraph,
    analysis: Analysis,
    *,
    depth: int | None,
) -> tuple[SceneGroup, ...]:
    """Return all groups, the root first."""
    opened = _find_open(groups, nodes, depth)
    types = {module.name: module.type_name for module in analysis.modules.values()}
    memory, ids = analysis.saved_memory, [node.node_id for node in folded.nodes]
    return tuple(
        _with_sizes(
            _scene_group(index, group, nodes, layouts[index], types),
            sizes=memory.of_nodes({ids[i] for i in group.nodes}) if index else memory.total(),
            is_open=index in opened,
            alone=("group", index) in alone,
        )
        for index, group in enumerate(groups)
    )


def _scene_group(
    index: int,
    group: FlatGroup,
    nodes: list[SceneNode],
    layout: GroupLayout,
    types: dict[str, str],
) -> SceneGroup:
    tree, region = group.tree, group.tree.region
    label, type_name = _names(tree, types)
    if tree.kind == "graph":
        type_name = nodes[group.nodes[-1]].op
    return SceneGroup(
        index=index,
        parent=group.parent,
        kind=tree.kind,
        label=label,
        type_name=type_name,
        path=tree.path,
        depth=group.depth,
        node_count=len(group.nodes),
        nbytes=0,
        recomputed_nbytes=0,
        peak_nbytes=0,
        repeat=len(tree.groups) if tree.kind == "repeat" else 1,
        checkpointed=region is not None or _all_checkpointed(tree),
        recomputes=len(region.recomputations) if region else _max_recomputes(tree),
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


def _names(tree: GroupTree, types: dict[str, str]) -> tuple[str, str]:
    """Return the label and the type name of a group."""
    type_name = types.get(tree.path, "")
    if tree.kind == "region" and tree.region is not None:
        return elide(last_part(tree.region.function), MAX_LABEL), ""
    if tree.kind in {"page", "graph"}:
        return tree.label, ""
    if tree.kind == "repeat":
        ends = tree.groups[0], tree.groups[-1]
        first, last = (block.label or last_part(block.path) for block in ends)
        return elide(f"{first} – {last}", MAX_LABEL), type_name
    return elide(last_part(tree.path), MAX_LABEL) or type_name, type_name


def _all_checkpointed(tree: GroupTree) -> bool:
    return tree.kind == "repeat" and all(block.region is not None for block in tree.groups)


def _max_recomputes(tree: GroupTree) -> int:
    """Return the maximum number of recomputations of a block in a run; 0 for other groups."""
    if tree.kind != "repeat":
        return 0
    regions = [block.region for block in tree.groups]
    return max((len(region.recomputations) for region in regions if region), default=0)


def _state(nodes: list[SceneNode]) -> RunState:
    states = {node.state for node in nodes}
    if "failed" in states:
        return "failed"
    return "ran" if "ran" in states else "not_run"


def _with_sizes(group: SceneGroup, *, sizes: SavedBytes, is_open: bool, alone: bool) -> SceneGroup:
    """Return a group with its widths, closed and open."""
    label = text_width(group.label, 12.5, bold=True)
    pills = text_width(f"×{group.repeat} identical", 10.0) + 24 if group.repeat > 1 else 0.0
    pills += 40 if group.checkpointed else 0.0
    width = 20 + label + 8 + pills + 10 + text_width(plural(group.node_count, "node"), 10.5) + 10
    column = COLUMN_OP_WIDTH + COLUMN_NAME_WIDTH if alone else 0.0
    header = 30 + label + 8 + text_width(header_note(group), 11.5) + 12
    return replace(
        group,
        nbytes=sizes.saved,
        recomputed_nbytes=sizes.recomputed,
        peak_nbytes=sizes.at_peak,
        open=is_open,
        width=max(width, column),
        header_width=header,
    )


def header_note(group: SceneGroup) -> str:
    """Return the text after the label of an open group."""
    words = [] if group.type_name == group.label else [group.type_name]
    if group.repeat > 1:
        words.append(f"×{group.repeat} identical")
    elif group.checkpointed:
        words.append("checkpoint region")
    return " · ".join(word for word in words if word)


def _find_open(groups: list[FlatGroup], nodes: list[SceneNode], depth: int | None) -> set[int]:
    """Return the groups that are initially open."""
    if depth is not None:
        return {i for i, group in enumerate(groups) if group.module_depth < depth or not i}
    opened = {0}
    for i, group in enumerate(groups):
        if group.tree.kind != "repeat" and any(nodes[node].error for node in group.nodes):
            opened.add(i)
    if len(nodes) > LARGE:
        return opened
    visible = sum(_added_boxes(groups[i]) for i in opened)
    waiting: list[tuple[int, int]] = []  # the largest first
    for i in sorted(opened):
        _push_closed(waiting, groups, i, opened)
    while waiting:
        index = heapq.heappop(waiting)[1]
        added = _added_boxes(groups[index])
        if not _stays_closed(groups[index].tree) and visible + added <= MAX_VISIBLE:
            visible += added
            opened.add(index)
            _push_closed(waiting, groups, index, opened)
    return opened


def _stays_closed(tree: GroupTree) -> bool:
    """Return whether a group is a run of blocks. Runs of separate graphs may be opened."""
    return tree.kind == "repeat" and tree.groups[0].kind != "graph"


def _added_boxes(group: FlatGroup) -> int:
    """Return the number of additional boxes that opening a group makes visible."""
    return len(group.tree.nodes) + len(group.children) - 1


def _push_closed(
    waiting: list[tuple[int, int]], groups: list[FlatGroup], index: int, opened: set[int]
) -> None:
    for child in groups[index].children:
        if child not in opened:
            heapq.heappush(waiting, (-len(groups[child].nodes), child))
