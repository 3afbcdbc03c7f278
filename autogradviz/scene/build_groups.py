"""Groups of the scene: their names, sizes and states."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from operator import attrgetter
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes, plural
from autogradviz.scene.choose_open_groups import find_open, open_dominating, open_parts
from autogradviz.scene.group_tree_components_and_cycles import SECTIONS, OpenedParts
from autogradviz.scene.label_text_and_width import elide, last_part, range_label, text_width
from autogradviz.scene.loop_names import find_loop
from autogradviz.scene.node_boxes_and_badges import COLUMN_NAME_WIDTH, COLUMN_OP_WIDTH
from autogradviz.scene.schema import SceneGroup, SceneNode
from autogradviz.scene.variable_names_of_storages import assigned_name, loss_of_backward
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.saved_memory import SavedBytes
    from autogradviz.scene.fold_leaves_and_views import FoldedGraph
    from autogradviz.scene.group_tree_components_and_cycles import GroupTree
    from autogradviz.scene.layout.edge_tracks import GroupLayout
    from autogradviz.scene.layout.group_sizes_and_main_column import FlatGroup
    from autogradviz.scene.schema import CellKind, RunState

_make_group = maker(SceneGroup)

MAX_LABEL: Final = 40

PICTURE_MARGIN: Final = 12.0
"""Around the picture of a compiled region, inside the box of its node."""


def build_groups(
    groups: list[FlatGroup],
    layouts: list[GroupLayout],
    alone: set[tuple[CellKind, int]],
    nodes: list[SceneNode],
    folded: FoldedGraph,
    analysis: Analysis,
    *,
    depth: int | None,
    opened: OpenedParts,
    pictures: Mapping[int, tuple[float, float]],
    contents: Mapping[int, str],
    dominating: Sequence[int],
    cut: Collection[int] = (),
    shown_step: int | None = None,
) -> tuple[SceneGroup, ...]:
    """Return all groups, the root first.

    Args:
        groups: the flattened tree of groups.
        layouts: their layouts.
        alone: nodes and groups that are alone in their row.
        nodes: the boxes of all nodes.
        folded: the drawn graph.
        analysis: the analysis of the recording.
        depth: number of levels of modules to open.
        opened: modules and compiled regions to open.
        pictures: sizes of the pictures of compiled regions, by node.
        contents: the numbers of ops of compiled regions, by node.
        dominating: nodes whose compiled regions are opened while the picture stays readable.
        cut: nodes at which gradients end according to a finding.
        shown_step: the number of the step to open, if none failed.
    """
    types = {module.name: module.type_name for module in analysis.modules.values()}
    memory, ids = analysis.saved_memory, [node.node_id for node in folded.nodes]
    sizes = [(memory.total(), 0)]
    sizes += [memory.counted_for_nodes({ids[i] for i in group.nodes}) for group in groups[1:]]
    plain = [
        _scene_group(index, group, nodes, layouts[index], types, contents, *sizes[index])
        for index, group in enumerate(groups)
    ]
    plain = _name_loops(plain, groups, folded, analysis)
    named = _name_graphs(_number_namesakes(plain, groups, folded), groups, nodes, folded, analysis)
    closed = [
        _with_widths(group, alone=("group", index) in alone) for index, group in enumerate(named)
    ]
    if pictures:
        closed = [
            _with_picture(group, flat, pictures) for group, flat in zip(closed, groups, strict=True)
        ]
    found = open_parts(closed, groups, opened)
    if depth is not None or not opened.apart:
        shown = _groups_around_step(closed, f"step {shown_step}")
        found |= find_open(groups, closed, nodes, depth, cut, shown)
    for node in dominating:
        found |= open_dominating(groups, closed, nodes, found, node)
    return tuple(
        replace(group, open=True) if index in found else group for index, group in enumerate(closed)
    )


def _groups_around_step(groups: Sequence[SceneGroup], label: str) -> set[int]:
    """Return the first step that failed, or else that of the label, and the groups around it."""
    steps = [group for group in groups if group.kind == "step"]
    chosen = [group for group in steps if group.error] or [g for g in steps if g.label == label]
    found: set[int] = set()
    at = chosen[0].index if chosen else 0
    while at > 0:
        found.add(at)
        at = groups[at].parent
    return found


def _scene_group(
    index: int,
    group: FlatGroup,
    nodes: list[SceneNode],
    layout: GroupLayout,
    types: dict[str, str],
    contents: Mapping[int, str],
    sizes: SavedBytes,
    shared_nbytes: int,
) -> SceneGroup:
    tree, region = group.tree, group.tree.region
    label, type_name = _names(tree, types, nodes)
    return _make_group(
        index=index,
        parent=group.parent,
        kind=tree.kind,
        label=label,
        type_name=type_name,
        path=tree.path,
        depth=group.depth,
        node_count=len(group.nodes),
        nbytes=sizes.saved,
        recomputed_nbytes=sizes.recomputed,
        shared_nbytes=shared_nbytes,
        peak_nbytes=sizes.at_peak,
        repeat=tree.count,
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
        contents=contents.get(group.nodes[0], "") if tree.kind == "compiled" else "",
    )


def _name_loops(
    plain: list[SceneGroup], flat: list[FlatGroup], folded: FoldedGraph, analysis: Analysis
) -> list[SceneGroup]:
    """Return the groups; those of iterations are named by the line of their loop, if known."""
    named = list(plain)
    for index, group in enumerate(flat):
        tree = group.tree
        if tree.kind != "repeat" or tree.label or tree.first.kind != "iteration":
            continue
        loop = find_loop(analysis, folded.nodes, tree)
        if loop is not None:
            text, filename, lineno = loop
            place = f"{PurePath(filename).name}:{lineno}"
            named[index] = replace(plain[index], label=elide(text, MAX_LABEL), type_name=place)
    return named


def _number_namesakes(
    plain: list[SceneGroup], flat: list[FlatGroup], folded: FoldedGraph
) -> list[SceneGroup]:
    """Return the groups; those in one group that have the same name are told apart.

    A module has several boxes if it is called, or entered from outside, several times: "proj (1 of
    3)". The graph of a checkpoint's recomputation is named as such.
    """
    numbered = list(plain)
    for group in flat:
        alike: dict[str, list[int]] = {}
        for child in group.children:
            if plain[child].kind in {"module", "repeat", "region"}:
                alike.setdefault(plain[child].label, []).append(child)
        for label, children in alike.items():
            if len(children) == 1:
                continue
            again = [child for child in children if _is_recomputed(flat[child], folded)]
            first = [child for child in children if child not in again]
            for at, child in enumerate(first, 1):
                of = f" ({at:,} of {len(first):,})" if len(first) > 1 else ""
                numbered[child] = replace(plain[child], label=label + of)
            for child in again:
                numbered[child] = replace(
                    plain[child],
                    label=f"{label} (recomputation)",
                    type_name="the rest of its bytes, saved in backward",
                )
    return numbered


def _is_recomputed(group: FlatGroup, folded: FoldedGraph) -> bool:
    """Return whether a recomputation created all nodes of a group whose ops are known."""
    ops = [op for op in (folded.nodes[node].op for node in group.nodes) if op is not None]
    return bool(ops) and all(op.recompute_id is not None for op in ops)


def _name_graphs(
    closed: list[SceneGroup],
    flat: list[FlatGroup],
    nodes: list[SceneNode],
    folded: FoldedGraph,
    analysis: Analysis,
) -> list[SceneGroup]:
    """Return the groups; separate graphs are named by their backward and the line of their root.

    "backward 2 · train.py:41", where backwards are counted over the separate graphs.
    """
    starts: dict[int, int] = {}
    for index, group in enumerate(flat):
        if group.tree.kind in SECTIONS:
            runs = [folded.nodes[i].ran[0][0] for i in group.nodes if folded.nodes[i].ran]
            if runs:
                starts[index] = min(runs)
    graphs = [index for index in starts if flat[index].tree.kind == "graph"]
    numbers = {index: n for n, index in enumerate(sorted(graphs, key=starts.__getitem__), 1)}
    variables = _variables_of_graphs(flat, folded, analysis)
    named = list(closed)
    for index, group in enumerate(flat):
        if group.tree.kind in SECTIONS:
            root = nodes[group.nodes[-1]]
            file = PurePath(root.filename).name
            place = f"{file}:{root.lineno}" if file and root.lineno else root.op
            number = numbers.get(index)
            none = starts and index not in starts
            variable = variables.get(index, "")
            words = [f"backward {number}" if number else "no backward" if none else "", place]
            named[index] = replace(
                closed[index],
                label=variable or closed[index].label,
                type_name=" · ".join(filter(None, words)),
            )
    return named


def _variables_of_graphs(
    flat: list[FlatGroup], folded: FoldedGraph, analysis: Analysis
) -> dict[int, str]:
    """Return the losses of separate graphs: "loss_d" of ``loss_d.backward()``.

    Without such a line, it is the variable that the root was assigned to. Graphs of one group are
    named only if their variables differ.
    """
    backwards = sorted(
        (s for s in analysis.timeline.spans if s.kind == "backward" and not s.depth),
        key=attrgetter("start_ns"),
    )
    found: dict[int, str] = {}
    siblings: dict[int, list[int]] = {}
    for index, group in enumerate(flat):
        if group.tree.kind == "graph":
            siblings.setdefault(group.parent, []).append(index)
    for members in siblings.values():
        names = []
        for index in members:
            root = folded.nodes[flat[index].nodes[-1]]
            time_ns = root.ran[0][0] if root.ran else -1
            at = bisect_right(backwards, time_ns, key=attrgetter("start_ns")) - 1
            loss = loss_of_backward(backwards[at]) if at >= 0 else ""
            names.append(loss or (assigned_name(root.location.text) if root.location else ""))
        if all(name.isidentifier() for name in names) and len(set(names)) == len(names):
            found.update(zip(members, names, strict=True))
    return found


def _with_picture(
    group: SceneGroup, flat: FlatGroup, pictures: Mapping[int, tuple[float, float]]
) -> SceneGroup:
    """Return the group of a compiled region with the size of the region's picture."""
    size = pictures.get(flat.nodes[0]) if group.kind == "compiled" else None
    if size is None:
        return group
    width, height = (part + 2 * PICTURE_MARGIN for part in size)
    return replace(group, picture_width=width, picture_height=height)


def _names(tree: GroupTree, types: dict[str, str], nodes: Sequence[SceneNode]) -> tuple[str, str]:
    """Return the label and the type name of a group."""
    type_name = types.get(tree.path, "")
    if tree.label and tree.count > 1:
        return elide(tree.label, MAX_LABEL), "" if tree.kind == "repeat" else type_name
    if tree.kind == "repeat" and tree.first.kind == "iteration":
        return elide(" · ".join(_ops(tree.first, nodes)), MAX_LABEL), ""
    if tree.kind == "region" and tree.region is not None:
        return elide(last_part(tree.region.function), MAX_LABEL), ""
    if tree.kind in {"iteration", "page", "step", "graph", "compiled"}:
        return tree.label, nodes[tree.nodes[0]].name if tree.kind == "compiled" else ""
    if tree.kind == "repeat":
        label = range_label(
            *(each.label or last_part(each.path) for each in (tree.first, tree.last))
        )
        if tree.first.kind in SECTIONS:
            label = label.replace(" ", "s ", 1)  # "steps 0–16"
        return elide(label, MAX_LABEL), type_name
    return elide(last_part(tree.path), MAX_LABEL) or type_name, type_name


def _ops(tree: GroupTree, nodes: Sequence[SceneNode]) -> list[str]:
    """Return the distinct ops of an iteration, in order of creation."""
    names = {nodes[i].op or nodes[i].name: None for i in sorted(tree.all_nodes())}
    return list(names)


def _blocks(tree: GroupTree) -> list[GroupTree]:
    """Return all blocks of a run, also those behind the first that are a run of their own."""
    if tree.count == 1:
        return []
    blocks: list[GroupTree] = []
    for block in tree.groups:
        blocks += _blocks(block) if block.kind == "repeat" else [block]
    return blocks


def _all_checkpointed(tree: GroupTree) -> bool:
    blocks = _blocks(tree)
    return bool(blocks) and all(block.region is not None for block in blocks)


def _max_recomputes(tree: GroupTree) -> int:
    """Return the maximum number of recomputations of a block in a run; 0 for other groups."""
    regions = [block.region for block in _blocks(tree)]
    return max((len(region.recomputations) for region in regions if region), default=0)


def _state(nodes: list[SceneNode]) -> RunState:
    states = {node.state for node in nodes}
    if "failed" in states:
        return "failed"
    return "ran" if "ran" in states else "not_run"


def _with_widths(group: SceneGroup, *, alone: bool) -> SceneGroup:
    """Return a group with its widths, closed and open."""
    label = text_width(group.label, 12.5, bold=True)
    pills = text_width(f"×{group.repeat:,} same ops", 10.0) + 24 if group.repeat > 1 else 0.0
    pills += 40 if group.checkpointed else 0.0
    if group.kind == "compiled":
        pills += text_width(group.type_name, 10.5) + 10
    width = 20 + label + 8 + pills + 10 + text_width(closed_note(group), 10.5) + 10
    column = COLUMN_OP_WIDTH + COLUMN_NAME_WIDTH if alone else 0.0
    header = 30 + label + 8 + text_width(header_note(group), 11.5) + 12
    return replace(group, width=max(width, column), header_width=header)


def closed_note(group: SceneGroup) -> str:
    """Return the text on the right of a closed group: nodes or ops, and saved bytes."""
    counts = group.contents or plural(group.node_count, "node")
    return " · ".join(filter(None, (counts, saved_note(group))))


def saved_note(group: SceneGroup) -> str:
    """Return the saved bytes of a group: "3.1 MB saved · 26 MB recomputed · 8.2 kB shared"."""
    words = []
    if group.nbytes:
        words.append(f"{format_bytes(group.nbytes)} saved")
    if group.recomputed_nbytes:
        words.append(f"{format_bytes(group.recomputed_nbytes)} recomputed")
    if group.shared_nbytes:
        words.append(f"{format_bytes(group.shared_nbytes)} shared")
    return " · ".join(words)


def header_note(group: SceneGroup) -> str:
    """Return the text after the label of an open group."""
    words = [] if group.type_name == group.label else [group.type_name]
    if group.repeat > 1:
        words.append(f"×{group.repeat:,} same ops")
    elif group.checkpointed:
        words.append("checkpoint region")
    return " · ".join(word for word in words if word)
