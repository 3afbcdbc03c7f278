"""The groups that are open at first."""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autogradviz.scene.group_tree_components_and_cycles import SECTIONS, OpenedParts
from autogradviz.scene.layout.group_sizes_and_main_column import GroupGeometry, measure

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from autogradviz.scene.layout.group_sizes_and_main_column import FlatGroup
    from autogradviz.scene.schema import SceneGroup, SceneNode


MAX_WIDTH: Final = 960.0
MAX_HEIGHT: Final = 720.0
"""Size of the first picture in pixels, which a notebook cell shows with readable text."""

MAX_HEIGHT_OF_RUN: Final = 860.0
"""The same for a picture with the representative block of a run, which says the most."""

MAX_WIDTH_OF_REGION: Final = 1_250.0
"""The same for a picture with an opened compiled region, whose columns are lines, or with the only
group that is open."""

MAX_WIDTH_OF_CUT: Final = 1_400.0
"""The same for a picture with the opened group in which gradients end according to a finding."""

MAX_ADDED: Final = 40
"""Groups with more boxes are not opened initially."""

MAX_TRIES: Final = 60


@dataclass(frozen=True, slots=True)
class _Drawing:
    """The parts of a scene that determine its size."""

    groups: Sequence[SceneGroup]
    nodes: Sequence[SceneNode]


def find_open(
    flat: list[FlatGroup],
    groups: list[SceneGroup],
    nodes: list[SceneNode],
    depth: int | None,
    cut: Collection[int] = (),
    shown: Collection[int] = (),
) -> set[int]:
    """Return the groups that are initially open.

    Groups with an error are open, and those with a node at which gradients end according to a
    finding (``cut``), while the picture stays readable. Then groups are opened while the picture
    keeps its size: runs of blocks first, each with its first block as the representative of all,
    then other groups, the largest first. Siblings whose names differ only in numbers are opened
    together; of steps only the one that is ``shown``, with the groups around it.
    """
    if depth is not None:
        return {
            i
            for i, group in enumerate(flat)
            if (group.module_depth < depth and groups[i].kind != "compiled") or not i
        }
    opened = {0}
    opened |= {
        i
        for i, group in enumerate(flat)
        if group.tree.count == 1 and any(nodes[node].error for node in group.nodes)
        if group.tree.kind != "compiled"
    }
    drawing = _Drawing(groups, nodes)
    width, height = _group_size(drawing, opened)
    if height > MAX_HEIGHT:
        return opened
    opened = _open_around(cut, flat, drawing, opened)
    waiting: list[tuple[bool, int, tuple[int, ...]]] = []
    for i in sorted(opened):
        _push_siblings(waiting, flat, groups, i, opened, shown)
    if any(node.error for node in nodes):  # the failing block represents the others
        waiting = [each for each in waiting if each[0]]
        heapq.heapify(waiting)
    tries = MAX_TRIES
    widest = max(MAX_WIDTH, 1.1 * width)
    while waiting and (tries := tries - 1):
        chosen = set(heapq.heappop(waiting)[2])
        if any(len(flat[i].tree.nodes) + len(flat[i].children) > MAX_ADDED for i in chosen):
            continue
        firsts = {_first(flat[i], shown) for i in chosen if flat[i].tree.count > 1}
        graphs = [i for i in sorted(chosen) if flat[i].tree.kind in SECTIONS]
        chosen |= firsts
        now_wide, now_high = _group_size(drawing, opened | chosen)
        highest = MAX_HEIGHT_OF_RUN if firsts else MAX_HEIGHT
        # A closed model says nothing: it may be wider, as with several embeddings side by side.
        limit = max(widest, MAX_WIDTH_OF_REGION) if opened == {0} else widest
        if now_wide <= limit and now_high <= highest:
            opened |= chosen
            widest = limit
            for i in sorted(chosen):
                _push_siblings(waiting, flat, groups, i, opened, shown)
        elif len(graphs) > 1:  # too many: the one that is shown, or the first one
            one = next((i for i in graphs if i in shown), graphs[0])
            heapq.heappush(waiting, (False, 0, (one,)))
    return opened if len(opened) > 1 else opened | _only_group(flat, shown)


def _open_around(
    cut: Collection[int], flat: list[FlatGroup], drawing: _Drawing, opened: set[int]
) -> set[int]:
    """Return the open groups with those around the first of some nodes that keep the size."""
    chosen = set(opened)
    for node in sorted(cut)[:1]:
        for i, group in enumerate(flat):
            if node in group.nodes and group.tree.count == 1 and group.tree.kind != "compiled":
                width, height = _group_size(drawing, chosen | {i})
                if width > MAX_WIDTH_OF_CUT or height > MAX_HEIGHT_OF_RUN:
                    break
                chosen.add(i)
    return chosen


def _first(group: FlatGroup, shown: Collection[int]) -> int:
    """Return the child that represents a run, or the step that is shown."""
    return next((child for child in group.children if child in shown), group.children[0])


def _only_group(flat: list[FlatGroup], shown: Collection[int]) -> set[int]:
    """Return the group that is all there is, with its first block: one closed box says nothing.

    Of several steps, it is the one that is shown.

    A picture that is too large for a notebook cell shows its top.
    """
    root = flat[0]
    found: set[int] = set()
    while root.children and (
        root.tree.count > 1
        or _first(root, shown) in shown
        or not (root.tree.nodes or root.children[1:])
    ):
        child = _first(root, shown)
        root = flat[child]
        boxes = len(root.tree.nodes) + len(root.children)
        if root.tree.kind == "compiled" or (boxes > MAX_ADDED and root.tree.count == 1):
            return set()
        found.add(child)
    return found


def open_dominating(
    flat: list[FlatGroup],
    groups: list[SceneGroup],
    nodes: list[SceneNode],
    opened: set[int],
    dominating: int,
) -> set[int]:
    """Return the group of a compiled region and those around it, if the picture stays readable."""
    parts = OpenedParts((), frozenset({dominating}), frozenset())
    found = open_parts(groups, flat, parts)
    width, height = _group_size(_Drawing(groups, nodes), opened | found)
    return found if width <= MAX_WIDTH_OF_REGION and height <= MAX_HEIGHT_OF_RUN else set()


def open_parts(groups: list[SceneGroup], flat: list[FlatGroup], opened: OpenedParts) -> set[int]:
    """Return the groups of modules and of compiled regions, and the groups around them."""
    found = {0}
    for group in groups:
        if group.kind == "compiled":
            chosen = flat[group.index].nodes[0] in opened.compiled_nodes
        else:
            chosen = group.path in opened.modules and group.repeat == 1
        at = group.index if chosen else 0
        while at > 0:
            found.add(at)
            at = groups[at].parent
    return found


def _group_size(drawing: _Drawing, opened: set[int]) -> tuple[float, float]:
    geometries: dict[int, GroupGeometry] = {}
    measure(drawing, 0, opened, geometries)
    return geometries[0].width, geometries[0].height


def _push_siblings(
    waiting: list[tuple[bool, int, tuple[int, ...]]],
    flat: list[FlatGroup],
    groups: list[SceneGroup],
    index: int,
    opened: set[int],
    shown: Collection[int],
) -> None:
    """Add the closed groups in a group that may be opened.

    Those are one block of a run, and of steps the one that is shown and those of other nodes, as a
    GAN has.
    """
    children = flat[index].children
    first = _first(flat[index], shown) if children else -1
    if flat[index].tree.count > 1:
        children = [first]
    elif first in shown:
        size = len(flat[first].nodes)
        steps = {i for i in children if flat[i].tree.kind == "step" and len(flat[i].nodes) != size}
        children = [i for i in children if i == first or i in steps]
    alike: dict[tuple[str, str, bool], list[int]] = {}
    for child in children:
        tree = flat[child].tree
        if child not in opened and tree.kind != "compiled":
            group = groups[child]
            type_name = "" if tree.kind in SECTIONS else group.type_name
            key = re.sub(r"\d+", "#", group.label), type_name, group.repeat > 1
            alike.setdefault(key, []).append(child)
    for (_, _, repeated), siblings in alike.items():
        size = sum(len(flat[i].nodes) for i in siblings)
        heapq.heappush(waiting, (not repeated, -size, tuple(siblings)))
