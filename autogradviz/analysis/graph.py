"""The autograd graph: nodes with all that is known of them, and the ways of the gradients."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autogradviz.analysis.creation_order import creation_order
from autogradviz.analysis.fast_rows import rows_of
from autogradviz.analysis.node_runs import NodeRun, find_failed_nodes
from autogradviz.analysis.types import Edge, Graph, Node, Op, Parameter, RunState, SavedTensor
from autogradviz.events import (
    NO_ID,
    BackwardStarted,
    GradAccumulated,
    NodeFinished,
    NodeSeen,
    NormRead,
)
from autogradviz.fast_dataclass import maker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis.id_tables import ParameterOwners, Tensors
    from autogradviz.analysis.match_ops_nodes import Links
    from autogradviz.analysis.module_calls import CallIntervals
    from autogradviz.analysis.stacks import Stacks
    from autogradviz.analysis.types import SourceLocation
    from autogradviz.event_log import Log

_make_node = maker(Node)
_make_edge = maker(Edge)


@dataclass(frozen=True, slots=True)
class GraphParts:
    """What a graph is put together from."""

    tensors: Tensors
    owners: ParameterOwners
    links: Links
    calls: CallIntervals
    call_modules: dict[int | None, str]
    op_by_seq: dict[int, Op]
    saved: Iterable[SavedTensor]
    runs: list[NodeRun]
    stacks: Stacks


def build_graph(log: Log, parts: GraphParts) -> Graph:
    """Return the graph of all nodes that were seen, of all generations."""
    edges = _build_edges(log)
    order = creation_order(log, parts.links, edges)
    saved_of = _saved_of_nodes(parts.saved)
    finished = Counter(event.node_id for event in rows_of(log, NodeFinished))
    failed = find_failed_nodes(log, parts.runs)
    runs = _runs_of_nodes(parts.runs)
    parameters = _leaf_parameters(log, parts)
    nodes: dict[int, Node] = {}
    for event in log.of(NodeSeen):
        node_id = event.node_id
        op = parts.op_by_seq.get(parts.links.op_of_node.get(node_id, NO_ID))
        saved = tuple(saved_of.get(node_id, ()))
        nodes[node_id] = _make_node(
            node_id=node_id,
            name=event.node_name,
            sequence_nr=event.sequence_nr,
            thread=event.thread if op is None else op.thread,
            op=op,
            module=_module(event, op, parts),
            location=_location(event, op, saved, parts),
            parameter=parameters.get(node_id),
            saved=saved,
            region_id=_region_id(op, saved),
            state=_state(node_id, finished, failed),
            runs=finished[node_id],
            duration_ns=sum(end - start for start, end in runs[node_id] if end is not None),
            order=order[node_id],
            ran=tuple(runs[node_id]),
        )
    return Graph(nodes=nodes, edges=edges, roots=_find_roots(log, nodes, edges))


def _build_edges(log: Log) -> tuple[Edge, ...]:
    # A recording that keeps the last steps only tells of old nodes more than once.
    known = {event.node_id: event for event in log.of(NodeSeen)}
    return tuple(
        _make_edge(source=event.node_id, target=target, output=output, input=index)
        for event in known.values()
        for output, (target, index) in enumerate(
            zip(event.next_node_ids, event.next_inputs, strict=False)
        )
        if target in known
    )


def _saved_of_nodes(saved: Iterable[SavedTensor]) -> dict[int, list[SavedTensor]]:
    of_nodes: dict[int, list[SavedTensor]] = defaultdict(list)
    for tensor in saved:
        if tensor.node_id is not None:
            of_nodes[tensor.node_id].append(tensor)
    return of_nodes


def _runs_of_nodes(runs: list[NodeRun]) -> dict[int, list[tuple[int, int | None]]]:
    """Return when each node began and ended to run."""
    of_nodes: dict[int, list[tuple[int, int | None]]] = defaultdict(list)
    for run in runs:
        of_nodes[run.node_id].append((run.started_ns, run.finished_ns))
    return of_nodes


def _leaf_parameters(log: Log, parts: GraphParts) -> dict[int, Parameter]:
    """Return what each AccumulateGrad node accumulates into, by node id."""
    accumulated = {event.node_id for event in log.of(GradAccumulated)}
    norms = {read.tensor_id: read.norm for read in log.of(NormRead) if read.place == "gradient"}
    parameters: dict[int, Parameter] = {}
    for event in log.of(NodeSeen):
        if event.tensor_id is not None:
            tensor = parts.tensors[event.tensor_id]
            parameters[event.node_id] = Parameter(
                name=parts.owners.of(tensor)[0],
                tensor=tensor,
                accumulated=event.node_id in accumulated,
                norm=norms.get(event.tensor_id),
                finite=norms.get(event.tensor_id, 0.0) is not None,
            )
    return parameters


def _module(event: NodeSeen, op: Op | None, parts: GraphParts) -> str:
    """Return the module of a node: its leaf's owner, its op's, or that of its number."""
    if event.tensor_id is not None:
        return parts.owners.of(parts.tensors[event.tensor_id])[1]
    if op is not None and op.module:
        return op.module
    if event.sequence_nr is None:
        return ""
    thread = event.thread if op is None else op.thread
    return parts.call_modules.get(parts.calls.at(thread, event.sequence_nr), "")


def _location(
    event: NodeSeen, op: Op | None, saved: tuple[SavedTensor, ...], parts: GraphParts
) -> SourceLocation | None:
    if op is not None:
        return op.location
    if event.stack_id is not None:  # a custom Function's
        return parts.stacks.location(event.stack_id)
    return next((tensor.location for tensor in saved if tensor.location), None)


def _region_id(op: Op | None, saved: tuple[SavedTensor, ...]) -> int | None:
    if op is not None:
        return op.region_id
    return next((tensor.region_id for tensor in saved), None)


def _state(node_id: int, finished: Counter[int], failed: set[int]) -> RunState:
    # A node may run once and fail the second time: the failure is what matters then.
    if node_id in failed:
        return "failed"
    return "ran" if finished[node_id] else "not_run"


def _find_roots(log: Log, nodes: dict[int, Node], edges: tuple[Edge, ...]) -> tuple[int, ...]:
    """Return the nodes where backward began, then those that no other node leads to."""
    began = [i for event in log.of(BackwardStarted) for i in event.root_ids if i in nodes]
    targets = {edge.target for edge in edges}
    tops = [node_id for node_id in nodes if node_id not in targets]
    return tuple(dict.fromkeys(began + tops))
