"""Model and findings into a scene."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from autogradviz.fast_dataclass import maker
from autogradviz.gc_control import collector_paused
from autogradviz.scene.fold import FoldedGraph, fold_graph
from autogradviz.scene.grouping import build_tree
from autogradviz.scene.groups import draw_groups
from autogradviz.scene.layout.flatten import find_alone, lay_out_levels, list_levels, seat_nodes
from autogradviz.scene.lifelines import draw_storages
from autogradviz.scene.module_costs import draw_modules
from autogradviz.scene.nodes import draw_boxes
from autogradviz.scene.panels import (
    draw_changes,
    draw_diffs,
    draw_findings,
    draw_lines,
    draw_memory,
    draw_regions,
    draw_spans,
    summarize,
)
from autogradviz.scene.saved_diffs import draw_saved_diffs
from autogradviz.scene.schema import Scene, SceneEdge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.diagnose.finding import Finding

_make_edge = maker(SceneEdge)


@collector_paused()
def build_scene(
    analysis: Analysis,
    findings: Sequence[Finding],
    *,
    title: str | None = None,
    depth: int | None = None,
    beside: bool = True,
) -> Scene:
    """Return everything that a renderer may draw.

    Args:
        analysis: what was recorded.
        findings: what was found in it, the surest first.
        title: the picture's title; the model's class by default.
        depth: how many levels show at first: 1 shows the outermost modules closed, 2 opens
            them. By default as many groups are open as make a readable picture.
        beside: whether what stands beside the graph is wanted too (regions, time, memory,
            storages, source); a picture of the graph shows none of it, and it takes as long
            again.
    """
    keep = {f.nodes[0] for f in findings if f.nodes and f.confidence != "hint"}
    hooked = {node_id for hook in analysis.hooks for node_id in hook.node_ids}
    folded = fold_graph(analysis.graph, keep | hooked)
    victims = {i for i, n in enumerate(folded.nodes) if n.node_id in keep or n.state == "failed"}
    levels = list_levels(build_tree(folded, analysis.regions, victims))
    layouts = lay_out_levels(levels, folded)
    alone = find_alone(layouts)
    seats = seat_nodes(levels, alone, len(folded.nodes))
    boxes = draw_boxes(analysis, folded, findings, victims, seats)
    on_path = _path_to(victims, folded)
    edges = tuple(
        _make_edge(source=source, target=target, views=views, on_path=(source, target) in on_path)
        for source, target, views in folded.edges
    )
    scene = Scene(
        summary=summarize(analysis, title),
        groups=draw_groups(levels, layouts, alone, boxes, analysis, depth=depth),
        nodes=tuple(boxes.nodes),
        edges=edges,
        chips=tuple(boxes.chips),
        pennants=tuple(boxes.pennants),
        findings=draw_findings(findings, folded, analysis.regions),
    )
    return _with_the_rest(scene, analysis, folded) if beside else scene


def _with_the_rest(scene: Scene, analysis: Analysis, folded: FoldedGraph) -> Scene:
    """Return a scene of the graph with what stands beside it."""
    storages, moments = draw_storages(analysis, folded)
    return replace(
        scene,
        regions=draw_regions(analysis.regions),
        diffs=draw_diffs(analysis.regions),
        spans=draw_spans(analysis, folded),
        memory=draw_memory(analysis),
        lines=draw_lines(analysis),
        storages=storages,
        moments=moments,
        modules=draw_modules(analysis),
        changes=draw_changes(analysis),
        saved_diffs=draw_saved_diffs(analysis),
    )


def _path_to(victims: set[int], folded: FoldedGraph) -> set[tuple[int, int]]:
    """Return the edges of the shortest way from where backward began to the first victim."""
    if not victims:
        return set()
    users: dict[int, list[int]] = {}
    for source, target, _ in folded.edges:
        users.setdefault(target, []).append(source)
    start = max(victims)
    towards = {start: start}  # each node's next one on the way to the victim
    queue = deque([start])
    while queue:
        node = queue.popleft()
        if not users.get(node):
            path = set()
            while towards[node] != node:
                path.add((node, towards[node]))
                node = towards[node]
            return path
        for user in users[node]:
            if user not in towards:
                towards[user] = node
                queue.append(user)
    return set()
