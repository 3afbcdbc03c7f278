"""The autograd graph: nodes with their op, module, saved tensors and runs, and edges."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autogradviz.analysis.compile_intervals import compile_intervals
from autogradviz.analysis.types import Edge, Graph, Node, Op, Parameter, RunState, SavedTensor
from autogradviz.event_log.rows_as_named_tuples import last_ns, rows_of
from autogradviz.events import (
    NO_ID,
    BackwardEnded,
    BackwardStarted,
    ErrorRaised,
    GradAccumulated,
    NodeFinished,
    NodeSeen,
    NodeStarted,
    NormRead,
)
from autogradviz.support.fast_dataclass_constructor import maker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from autogradviz.analysis.tensor_and_module_tables import (
        CallIntervals,
        ParameterOwners,
        Tensors,
    )
    from autogradviz.analysis.types import SourceLocation
    from autogradviz.event_log import Log
    from autogradviz.event_log.match_ops_to_nodes import OpNodeMatches
    from autogradviz.event_log.stacks import Stacks


# --- creation order of nodes across threads, from sequence numbers and forward ops ----------------


def creation_order(log: Log, matches: OpNodeMatches, edges: tuple[Edge, ...]) -> dict[int, int]:
    """Return the rank of each node by id, from 0 and without gaps.

    Nodes of one thread are ordered by sequence number. Threads are merged by the ops that created
    the nodes. AccumulateGrad has no sequence number and comes just before its first user.
    """
    nodes = {
        node_id: (number, node_id, thread)
        for number, node_id, thread in log.fields(NodeSeen, "sequence_nr", "node_id", "thread")
    }
    ranks = _rank_numbered(nodes.values(), matches)
    first_users: dict[int, int] = {}
    for edge in edges:
        rank = ranks.get(edge.source)
        if rank is not None and rank < first_users.get(edge.target, len(ranks)):
            first_users[edge.target] = rank
    keys = [
        (ranks[node_id], 1, node_id)
        if node_id in ranks
        else (first_users.get(node_id, len(ranks)), 0, node_id)
        for node_id in nodes
    ]
    return {node_id: rank for rank, (_, _, node_id) in enumerate(sorted(keys))}


def _rank_numbered(
    seen: Iterable[tuple[int | None, int, int]], matches: OpNodeMatches
) -> dict[int, int]:
    """Return the rank of each node that has a sequence number, among those nodes.

    Args:
        seen: sequence number, id and thread of each node.
        matches: the ops that created the nodes.
    """
    numbered = [(number, *rest) for number, *rest in seen if number is not None]
    latest: dict[int, int] = {}  # thread -> the last op so far
    keys: list[tuple[int, int, int]] = []
    for sequence_nr, node_id, walked_on in sorted(numbered):
        op_seq = matches.op_of_node.get(node_id)
        thread = walked_on if op_seq is None else matches.thread_of_op[op_seq]
        if op_seq is not None:
            latest[thread] = max(op_seq, latest.get(thread, op_seq))
        keys.append((latest.get(thread, -1), sequence_nr, node_id))
    return {node_id: rank for rank, (_, _, node_id) in enumerate(sorted(keys))}


# --- runs of nodes during backward, and the nodes that failed -------------------------------------


@dataclass(frozen=True, slots=True)
class NodeRun:
    """One run of a node. It has no end if an exception left it or if the log is torn."""

    backward_id: int
    node_id: int
    thread: int
    started_seq: int
    started_ns: int
    finished_ns: int | None


_make_run: Callable[..., NodeRun] = maker(NodeRun)


def read_runs(log: Log) -> list[NodeRun]:
    """Return all runs of all nodes, in the order in which they started."""
    finished_ns: list[int | None] = []
    unfinished: dict[tuple[int, int, int], list[int]] = {}
    for kind, time_ns, *key in log.merged_fields(
        (NodeStarted, NodeFinished), "time_ns", "thread", "backward_id", "node_id"
    ):
        thread, backward_id, node_id = key
        if kind is NodeStarted:
            unfinished.setdefault((thread, backward_id, node_id), []).append(len(finished_ns))
            finished_ns.append(None)
        elif waiting := unfinished.get((thread, backward_id, node_id)):
            finished_ns[waiting.pop()] = time_ns
    started = log.fields(NodeStarted, "backward_id", "node_id", "thread", "seq", "time_ns")
    return [_make_run(*run, end_ns) for run, end_ns in zip(started, finished_ns, strict=True)]


def find_failed_nodes(log: Log, runs: list[NodeRun], outermost: dict[int, int]) -> set[int]:
    """Return the nodes that raised: in each failed or torn backward, the innermost unfinished one.

    A reentrant checkpoint runs a backward inside a backward. Their unfinished nodes form one chain
    of calls, and the last one to start raised the exception.
    """
    completed = {event.backward_id for event in log.of(BackwardEnded) if not event.failed}
    innermost: dict[int, int] = {}
    for run in runs:
        if run.finished_ns is None and run.backward_id not in completed:
            innermost[outermost.get(run.backward_id, run.backward_id)] = run.node_id
    for error in log.of(ErrorRaised):
        if error.node_id is not None and error.backward_id is not None:
            innermost[outermost.get(error.backward_id, error.backward_id)] = error.node_id
    return set(innermost.values())


def find_outermost_backwards(log: Log) -> dict[int, int]:
    """Return the outermost backward that each backward ran in, itself for a top-level one."""
    outermost: dict[int, int] = {}
    for event in log.of(BackwardStarted):  # a parent comes before its children
        own, parent = event.backward_id, event.parent_backward_id
        outermost[own] = own if parent is None else outermost.get(parent, own)
    return outermost


# --- nodes and edges ------------------------------------------------------------------------------


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
    durations: Counter[int] = Counter()
    compiles = compile_intervals(log, last_ns(log))
    left_ns = {event.backward_id: event.time_ns for event in log.of(BackwardEnded)}
    for run in inputs.runs:
        runs[run.node_id].append((run.started_ns, run.finished_ns))
        # An exception leaves a run and its backward at the same time.
        end_ns = left_ns.get(run.backward_id) if run.finished_ns is None else run.finished_ns
        if end_ns is not None:
            compiling = sum(
                max(0, min(stop, end_ns) - max(start, run.started_ns)) for start, stop in compiles
            )
            durations[run.node_id] += end_ns - run.started_ns - compiling
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
            duration_ns=durations[node_id],
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
