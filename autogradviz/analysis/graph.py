"""The autograd graph: nodes with their op, module, saved tensors and runs, and edges."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autogradviz.analysis.node_creation_order import creation_order
from autogradviz.analysis.node_runs_and_failures import NodeRun, find_failed_nodes
from autogradviz.analysis.types import Edge, Graph, Node, Op, Parameter, RunState, SavedTensor
from autogradviz.event_log.read_named_tuples import rows_of
from autogradviz.events import (
    NO_ID,
    BackwardStarted,
    GradAccumulated,
    NodeFinished,
    NodeSeen,
    NormRead,
)
from autogradviz.support.objects import maker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from autogradviz.analysis.module_call_of_sequence_number import CallIntervals
    from autogradviz.analysis.tensor_and_module_tables import ParameterOwners, Tensors
    from autogradviz.analysis.types import SourceLocation
    from autogradviz.event_log import Log
    from autogradviz.event_log.match_ops_nodes import OpNodeMatches
    from autogradviz.event_log.stacks import Stacks

_make_node = maker(Node)
_make_edge: Callable[..., Edge] = maker(Edge)


@dataclass(frozen=True, slots=True)
class GraphInputs:
    """The parts of the analysis that the graph refers to."""

    tensors: Tensors
    owners: ParameterOwners
    matches: OpNodeMatches
    calls: CallIntervals
    call_modules: dict[int | None, str]
    op_by_seq: dict[int, Op]
    saved: Iterable[SavedTensor]
    runs: list[NodeRun]
    outermost_backwards: dict[int, int]
    stacks: Stacks


def build_graph(log: Log, inputs: GraphInputs) -> Graph:
    """Return the graph of all recorded nodes, of every step in the recording."""
    edges = _build_edges(log)
    order = creation_order(log, inputs.matches, edges)
    saved_by: dict[int | None, list[SavedTensor]] = defaultdict(list)
    for tensor in inputs.saved:
        saved_by[tensor.node_id].append(tensor)
    runs: dict[int, list[tuple[int, int | None]]] = defaultdict(list)
    for run in inputs.runs:
        runs[run.node_id].append((run.started_ns, run.finished_ns))
    finished = Counter(log.column(NodeFinished, "node_id"))
    failed = find_failed_nodes(log, inputs.runs, inputs.outermost_backwards)
    parameters = _leaf_parameters(log, inputs)
    nodes: dict[int, Node] = {}
    for event in rows_of(log, NodeSeen):
        node_id = event.node_id
        op = inputs.op_by_seq.get(inputs.matches.op_of_node.get(node_id, NO_ID))
        saved = tuple(saved_by.get(node_id, ()))
        ran = tuple(runs.get(node_id, ()))
        nodes[node_id] = _make_node(
            node_id=node_id,
            name=event.node_name,
            sequence_nr=event.sequence_nr,
            thread=event.thread if op is None else op.thread,
            op=op,
            module=_module(event, op, inputs),
            location=_location(event, op, saved, inputs),
            parameter=parameters.get(node_id),
            saved=saved,
            region_id=_region_id(op, saved),
            state=_state(node_id, finished, failed),
            runs=finished[node_id],
            duration_ns=sum([end - start for start, end in ran if end is not None]),
            order=order[node_id],
            ran=ran,
        )
    return Graph(nodes=nodes, edges=edges, roots=_find_roots(log, nodes, edges))


def _build_edges(log: Log) -> tuple[Edge, ...]:
    # A flight recording repeats the definitions of nodes that it keeps.
    known = {
        node_id: (targets, inputs)
        for node_id, targets, inputs in log.fields(
            NodeSeen, "node_id", "next_node_ids", "next_inputs"
        )
    }
    return tuple(
        _make_edge(node_id, target, output, index)
        for node_id, (targets, inputs) in known.items()
        for output, (target, index) in enumerate(zip(targets, inputs, strict=False))
        if target in known
    )


def _leaf_parameters(log: Log, inputs: GraphInputs) -> dict[int, Parameter]:
    """Return the leaf of each AccumulateGrad node, by node id."""
    accumulated = set(log.column(GradAccumulated, "node_id"))
    norms = {read.tensor_id: read.norm for read in log.of(NormRead) if read.place == "gradient"}
    parameters: dict[int, Parameter] = {}
    for node_id, tensor_id in log.fields(NodeSeen, "node_id", "tensor_id"):
        if tensor_id is not None:
            tensor = inputs.tensors[tensor_id]
            parameters[node_id] = Parameter(
                name=inputs.owners.of(tensor)[0],
                tensor=tensor,
                accumulated=node_id in accumulated,
                norm=norms.get(tensor_id),
                finite=norms.get(tensor_id, 0.0) is not None,
            )
    return parameters


def _module(event: NodeSeen, op: Op | None, inputs: GraphInputs) -> str:
    """Return a node's module: owner of its leaf, module of its op, or by sequence number."""
    if event.tensor_id is not None:
        return inputs.owners.of(inputs.tensors[event.tensor_id])[1]
    if op is not None and op.module:
        return op.module
    if event.sequence_nr is None:
        return ""
    thread = event.thread if op is None else op.thread
    return inputs.call_modules.get(inputs.calls.at(thread, event.sequence_nr), "")


def _location(
    event: NodeSeen, op: Op | None, saved: tuple[SavedTensor, ...], inputs: GraphInputs
) -> SourceLocation | None:
    if op is not None:
        return op.location
    if event.stack_id is not None:  # of a custom Function
        return inputs.stacks.location(event.stack_id)
    return next((tensor.location for tensor in saved if tensor.location), None)


def _region_id(op: Op | None, saved: tuple[SavedTensor, ...]) -> int | None:
    if op is not None:
        return op.region_id
    return next((tensor.region_id for tensor in saved), None)


def _state(node_id: int, finished: Counter[int], failed: set[int]) -> RunState:
    # A node may run once and fail the second time: report the failure.
    if node_id in failed:
        return "failed"
    return "ran" if finished[node_id] else "not_run"


def _find_roots(log: Log, nodes: dict[int, Node], edges: tuple[Edge, ...]) -> tuple[int, ...]:
    """Return the roots of all backwards, then the nodes that no edge leads to."""
    started = [i for event in log.of(BackwardStarted) for i in event.root_ids if i in nodes]
    targets = {edge.target for edge in edges}
    unreached = [node_id for node_id in nodes if node_id not in targets]
    return tuple(dict.fromkeys(started + unreached))
