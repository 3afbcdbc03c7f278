"""Building of a scene from the analysis and the findings."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from autogradviz.analysis.idle_time import find_idle
from autogradviz.scene import region_and_recomputation_tables, summary_and_steps
from autogradviz.scene import tables_of_findings_timeline_memory_and_lines as panels
from autogradviz.scene.build_groups import build_groups
from autogradviz.scene.call_tree import CallTree, build_times
from autogradviz.scene.checkpoint_plans import predicted_by_plan
from autogradviz.scene.compiled.tables import (
    build_compiled_tables,
    dominating_nodes,
    picture_sizes,
    region_contents,
    region_of_nodes,
)
from autogradviz.scene.detached_tensors import build_detaches, readers_at
from autogradviz.scene.finding_stories import find_blamed
from autogradviz.scene.fold_leaves_and_views import FoldedGraph, describe_folded, fold_graph
from autogradviz.scene.group_modules_and_repeats import group_nodes
from autogradviz.scene.group_tree_components_and_cycles import find_opened
from autogradviz.scene.layout.group_sizes_and_main_column import (
    find_alone,
    find_node_places,
    flatten_groups,
    lay_out_groups,
)
from autogradviz.scene.lifelines_of_storages import build_storages
from autogradviz.scene.memory_prediction_tables import build_prediction_tables
from autogradviz.scene.node_boxes_and_badges import KINDS, NodeBuilder
from autogradviz.scene.nodes_of_events_and_lines import NodesOfEventsAndLines
from autogradviz.scene.saved_memory_fold import (
    build_fold,
    find_shown_step,
    says_more_than_graph,
)
from autogradviz.scene.schema import Scene, SceneEdge
from autogradviz.scene.sentences_about_recording import build_facts
from autogradviz.scene.storages_of_memory_view import build_counted_storages
from autogradviz.scene.summary_and_steps import build_steps, steps_of_nodes
from autogradviz.scene.unused_parameters import build_unused_parameters
from autogradviz.scene.why_slots_are_saved import build_slot_reasons
from autogradviz.support.fast_dataclass_constructor import maker
from autogradviz.support.locks_gc_and_stderr import collector_paused

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

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
    opened: Collection[str] = (),
    graph_only: bool = False,
) -> Scene:
    """Return the view model of a recording.

    Args:
        analysis: the analysis of the recording.
        findings: findings about it, most certain first.
        title: title of the picture; by default the model's class name.
        depth: number of levels that are initially visible: 1 shows the outermost modules closed,
            2 opens them. By default, groups are opened while the picture stays readable.
        opened: paths of modules and names of compiled regions to open; only these, unless
            ``depth`` is given too. A block of a run of identical blocks is drawn apart from the
            others.
        graph_only: leave out regions, timeline, memory, storages and source lines, which a picture
            of the graph does not need and which take as long to build as the graph.

    Raises:
        ValueError: if a name in ``opened`` stands for no node.
    """
    if depth is not None:
        _check_depth(depth)
    keep = {f.nodes[0] for f in findings if f.nodes and f.confidence != "hint"}
    hooked = {node_id for hook in analysis.hooks for node_id in hook.node_ids}
    folded = fold_graph(analysis.graph, keep | hooked)
    victims = {i for i, n in enumerate(folded.nodes) if n.node_id in keep or n.state == "failed"}
    regions = analysis.compiled_regions
    region_of = region_of_nodes(regions, folded.index_of)
    parts = find_opened(opened, folded, regions, region_of)
    chosen = depth is not None or bool(opened)
    dominating = [] if chosen else dominating_nodes(regions, region_of, len(folded.nodes))
    drawn = {*parts.compiled_nodes, *dominating}
    names = {node: regions[at].name for node, at in region_of.items()}
    detaches = build_detaches(analysis, folded)
    blamed = find_blamed(analysis, findings)
    shown_step = find_shown_step(analysis, folded, blamed)
    groups = flatten_groups(
        group_nodes(
            folded,
            analysis.regions,
            victims | parts.apart,
            names,
            steps_of_nodes(analysis, folded.nodes),
            {each.reader: each.lineno for each in detaches},
            shown_step,
        )
    )
    layouts = lay_out_groups(groups, folded)
    alone = find_alone(layouts)
    tree = CallTree(analysis)
    builder = NodeBuilder(analysis, folded, findings, victims, blamed, tree)
    builder.build(find_node_places(groups, alone, len(folded.nodes)))
    nodes, saved = builder.nodes, builder.saved_tensor_badges
    on_path = _path_to(victims, folded)
    edges = tuple(
        _make_edge(source=source, target=target, views=views, on_path=(source, target) in on_path)
        for source, target, views in folded.edges
    )
    storages, events, rows = (
        ((), (), 0) if graph_only else build_storages(analysis, folded, blamed, tree)
    )
    compiled = build_compiled_tables(
        analysis,
        folded.index_of,
        {each.storage_id: each.index for each in storages},
        only={region_of[node] for node in drawn} if graph_only else None,
    )
    scene = Scene(
        summary=replace(
            summary_and_steps.summarize(analysis, title), folded_text=describe_folded(folded)
        ),
        groups=build_groups(
            groups,
            layouts,
            alone,
            nodes,
            folded,
            analysis,
            depth=depth,
            opened=parts,
            pictures=picture_sizes(compiled["compiled_regions"], compiled["compiled_pictures"]),
            contents={node: region_contents(regions[at]) for node, at in region_of.items()},
            dominating=dominating,
            cut=readers_at(detaches, findings),
            shown_step=shown_step,
        ),
        nodes=tuple(nodes),
        edges=edges,
        saved_badges=tuple(saved),
        parameter_badges=tuple(builder.parameter_badges),
        findings=panels.build_findings(
            findings,
            analysis,
            NodesOfEventsAndLines(analysis, nodes, builder.parameter_badges),
            detaches,
        ),
        detaches=detaches,
        **compiled,
    )
    if graph_only:
        return scene
    spans, span_count = panels.build_spans(analysis, folded)
    idle = find_idle(analysis)
    counted = build_counted_storages(analysis, folded, tree)
    times = build_times(analysis, tree)
    folds, ribbons, fold_bars = build_fold(analysis, folded, blamed)
    summary = replace(
        scene.summary,
        storage_rows=rows,
        spans=span_count,
        idle_ns=idle,
        fold_first=says_more_than_graph(ribbons),
    )
    unused = build_unused_parameters(analysis)
    facts, evidence = build_facts(analysis, unused, blamed, findings)
    live_memory, live_points = panels.build_live_memory(analysis)
    predictions = build_prediction_tables(analysis)
    return replace(
        scene,
        summary=summary,
        steps=build_steps(analysis),
        call_frames=tuple(tree.frames),
        call_times=times,
        unused_parameters=unused,
        facts=facts,
        evidence=evidence,
        regions=region_and_recomputation_tables.build_regions(analysis),
        diffs=region_and_recomputation_tables.build_diffs(analysis),
        spans=spans,
        memory=panels.build_memory(analysis.memory),
        memory_without_checkpoints=panels.build_memory(analysis.memory_without_checkpoints),
        live_memory=live_memory,
        live_points=live_points,
        lines=panels.build_lines(analysis),
        storages=storages,
        counted_storages=counted,
        saved_kinds=KINDS if folds else (),
        folds=predicted_by_plan(folds, predictions["budget_plans"]),
        ribbons=ribbons,
        fold_bars=fold_bars,
        storage_events=events,
        slot_reasons=build_slot_reasons(analysis),
        **predictions,
        changes=region_and_recomputation_tables.build_changes(analysis),
        saved_diffs=region_and_recomputation_tables.build_saved_diffs(analysis),
    )


def _check_depth(depth: object) -> None:
    if not isinstance(depth, int):
        message = f"depth is a number of module levels, not {type(depth).__name__}"
        raise TypeError(message)
    if depth < 0:
        message = f"depth is a number of module levels, from 0, not {depth}"
        raise ValueError(message)


def _path_to(victims: set[int], folded: FoldedGraph) -> set[tuple[int, int]]:
    """Return the edges of the shortest path from a root to the first victim."""
    if not victims:
        return set()
    users: dict[int, list[int]] = {}
    for source, target, _ in folded.edges:
        users.setdefault(target, []).append(source)
    start = max(victims)
    next_node = {start: start}  # on the path to the victim
    queue = deque([start])
    while queue:
        node = queue.popleft()
        if not users.get(node):
            path = set()
            while next_node[node] != node:
                path.add((node, next_node[node]))
                node = next_node[node]
            return path
        for user in users[node]:
            if user not in next_node:
                next_node[user] = node
                queue.append(user)
    return set()
