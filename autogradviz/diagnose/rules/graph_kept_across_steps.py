"""Graphs of earlier steps that stay alive: their saved tensors add up, step by step."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.analysis.formatting import format_bytes
from autogradviz.analysis.op_calls_and_arguments import is_view
from autogradviz.diagnose.evidence.tensors_of_earlier_graph import owner_of_old_graph
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.source.statements_rewritten_as_fixes import detached_sum
from autogradviz.events import BackwardStarted, NodeFinished, TensorReleased

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence

_LINKED: Final = 2  # earlier steps in a row; one may be a difference between two losses
_DETACHING: Final = frozenset({"detach", "detach_"})
_SHARE: Final = 0.1  # of the bytes that a step saves


@dataclass(frozen=True, slots=True)
class _Kept:
    """The saved tensors of each step that were alive after the next one, in bytes by step."""

    nbytes: dict[int, int]
    node_ids: frozenset[int]  # that saved them


@rule("graph-kept", mechanism="keep", when=NoError(), group="waste", needs={"ops"})
def graph_kept(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft if the graph of each step continues that of earlier ones, or is kept."""
    ends = evidence.analysis.steps.ends
    if len(ends) <= _LINKED or any(
        e.create_graph for e in evidence.analysis.log.of(BackwardStarted)
    ):
        return  # a graph through several steps, for gradients of gradients, is meant
    kept, link = _kept(evidence, ends), _link(evidence, ends) or _written_buffer(evidence, ends)
    if link is not None:
        yield _draft(evidence, link, kept, leaves_loss=_leaves_loss(evidence, link), linked=True)
    elif kept is not None:
        root = _root(evidence, kept)
        if root is not None:
            yield _draft(evidence, root, kept, linked=False)


def _written_buffer(evidence: Evidence, ends: list[int]) -> Op | None:
    """Return the last op that wrote values with a graph into a buffer, as those of earlier steps.

    Each write is a node that leads to the one before, until the buffer is detached.
    """
    graph = evidence.causal_graph
    steps: dict[int, set[int]] = defaultdict(set)  # by memory: the steps that wrote into it
    last: dict[int, int] = {}
    for index, name in enumerate(graph.op_names):
        detached = graph.inputs[index] if name in _DETACHING else ()
        for key in map(graph.memory, (*graph.written[index], *detached)):
            if key not in graph.buffer_memory or graph.phases[index] != "forward":
                continue
            if name in _DETACHING:
                steps.pop(key, None)
            elif graph.numbers[index] is not None:
                steps[key].add(bisect_right(ends, graph.op_seqs[index]))
                last[key] = index
    found = [last[key] for key, at in steps.items() if len(at) > _LINKED]
    return evidence.analysis.op_at(graph.op_seqs[max(found)]) if found else None


def _leaves_loss(evidence: Evidence, link: Op) -> Op | None:
    """Return the first op of what continues a graph whose node no backward ran, if one line has it.

    Only a log needs what it computes from there on, so that it is a place to detach, too. None if
    it is the line that continues the graph.
    """
    graph = evidence.causal_graph
    ran = {
        graph.op_of_node[node]
        for node in evidence.analysis.log.column(NodeFinished, "node_id")
        if node in graph.op_of_node
    }
    waiting = [bisect_left(graph.op_seqs, link.seq)]
    seen: set[int] = set()
    first: dict[SourceLocation | None, int] = {}
    while waiting:
        index = waiting.pop()
        made = [each for each in {*graph.producers(index), *graph.views(index)}
                if each != NO_OP and graph.numbers[each] is not None]  # fmt: skip
        if ran.intersection(made):
            first.setdefault(evidence.analysis.location(graph.stacks[index]), index)
        fresh = set(made) - ran - seen
        seen |= fresh
        waiting += fresh
    places = first.keys() - {link.location}
    if len(places) != 1 or link.location in first:
        return None
    return evidence.analysis.op_at(graph.op_seqs[first[places.pop()]])


def _kept(evidence: Evidence, ends: list[int]) -> _Kept | None:
    """Return the saved tensors that steps left, if all but the last one did; else None.

    A storage counts that the step itself created: parameters stay anyway. If anything was released
    later than in the next step, only the last few steps are kept, as in a pipeline.
    """
    analysis = evidence.analysis
    if _released_late(evidence, ends[0]) or not any(
        hold.end_seq is None
        or bisect_right(ends, hold.end_seq) > bisect_right(ends, hold.start_seq) + 1
        for hold in analysis.memory.holds
    ):
        return None
    created = evidence.created_seq
    total: dict[int, int] = defaultdict(int)
    left: dict[int, int] = defaultdict(int)
    saved_ids = set()
    for hold in analysis.memory.holds:
        step = bisect_right(ends, hold.start_seq)
        made = created.get(hold.storage_id)
        if step >= len(ends) - 1 or made is None or bisect_right(ends, made) != step:
            continue
        total[step] += hold.nbytes
        if hold.end_seq is None or hold.end_seq >= ends[-1]:
            left[step] += hold.nbytes
            saved_ids.add(hold.saved_id)
        elif hold.end_seq >= ends[step + 1]:
            return None
    grown = [left[step] for step in range(len(ends) - 1) if left[step] > _SHARE * total[step]]
    if len(grown) < max(_LINKED, len(ends) - 1):
        return None
    nodes = (analysis.saved[saved_id].node_id for saved_id in saved_ids)
    return _Kept(dict(left), frozenset(each for each in nodes if each is not None))


def _released_late(evidence: Evidence, end: int) -> bool:
    """Return whether tensors were released after an event whose saves are not in the log."""
    oldest = min(evidence.analysis.saved, default=0)
    released = evidence.analysis.log.fields(TensorReleased, "saved_id", "seq")
    return any(saved_id < oldest and seq >= end for saved_id, seq in released)


def _link(evidence: Evidence, ends: list[int]) -> Op | None:
    """Return the last op that continues a graph of two or more earlier steps.

    The edges of nodes are known that a backward or the end of the recording reached. Another op
    that made a node continues the graphs of its inputs, unless a detach returned the same tensor.
    """
    analysis, graph = evidence.analysis, evidence.causal_graph
    step_of = {node_id: bisect_right(ends, seq) for node_id, seq in analysis.op_of_node.items()}
    made_nodes = sum(
        number is not None and phase == "forward"
        for number, phase in zip(graph.numbers, graph.phases, strict=True)
    )
    if made_nodes == len(step_of) and not any(
        step_of.get(edge.target, len(ends)) < step_of.get(edge.source, -1)
        for edge in analysis.graph.edges
    ):
        return None  # all nodes are known, and no edge leads to an earlier step
    walked = {node.op.seq: node for node in analysis.graph.nodes.values() if node.op is not None}
    made: dict[int, int] = {}  # the op of the node of each tensor
    depth: dict[int, int] = {}  # earlier steps that the graph of an op's node leads to
    found = None
    for index, (seq, number, given, outputs) in enumerate(
        zip(graph.op_seqs, graph.numbers, graph.inputs, graph.outputs, strict=True)
    ):
        if graph.phases[index] != "forward":
            continue
        before: int | None = None
        if number is not None:
            step = bisect_right(ends, seq)
            depth[seq] = 0
            node, above = walked.get(seq), [made[each] for each in given if each in made]
            for target in above if node is None else _below(evidence, node):
                earlier = bisect_right(ends, target) < step
                depth[seq] = max(depth[seq], depth.get(target, 0) + earlier)
                if earlier and depth[seq] >= _LINKED:
                    found = seq
            # A view of a parameter may be the same tensor in each step, and starts a graph.
            before = seq if not is_view(analysis.ops[index]) else next(iter(above), None)
        for tensor_id in outputs:
            if before is not None:
                made[tensor_id] = before
            else:
                made.pop(tensor_id, None)
    return None if found is None else analysis.op_at(found)


def _below(evidence: Evidence, node: Node) -> list[int]:
    """Return the ops of the nodes to which a node passes gradients."""
    nodes = evidence.analysis.graph.nodes
    targets = (nodes[edge.target] for edge in evidence.edges_from[node.node_id])
    return [each.op.seq for each in targets if each.op is not None and each.parameter is None]


def _root(evidence: Evidence, kept: _Kept) -> Node | None:
    """Return the last node of a kept graph: the one that computed the tensor that is kept."""
    graph = evidence.analysis.graph
    above, waiting = set(kept.node_ids), list(kept.node_ids)
    while waiting:
        for user in (edge.source for edge in evidence.edges_to[waiting.pop()]):
            if user not in above:
                above.add(user)
                waiting.append(user)
    roots = [graph.nodes[each] for each in above if not evidence.edges_to[each]]
    known = [node for node in roots if node.location is not None]
    return max(known, key=lambda node: node.order, default=None)


def _draft(
    evidence: Evidence,
    made: Node | Op,
    kept: _Kept | None,
    *,
    linked: bool,
    leaves_loss: Op | None = None,
) -> Draft:
    analysis = evidence.analysis
    retaining = next((e for e in analysis.log.of(BackwardStarted) if e.retain_graph), None)
    place = analysis.location(retaining.stack_id) if retaining is not None else None
    size = format_bytes(min(kept.nbytes.values())) if kept is not None else ""
    return Draft(
        title=f"Each step leaves {size} of saved tensors alive: their graph is kept"
        if kept is not None
        else "Each step continues the graph of the earlier steps, which all stay alive",
        culprit=leaves_loss if leaves_loss is not None else made.location,
        victim=place if kept is not None else None,
        explanation=[
            "This op takes a tensor from the graph of an earlier step, which led to a still "
            "earlier one, and so on:"
            if linked
            else "This line computed a tensor whose graph was alive after the next step:",
            made,
            "What it takes is computed for it alone from here on, by nodes that no backward ran:"
            if leaves_loss is not None
            else "",
            leaves_loss,
            f"Each step computed and saved {size} of tensors that were still alive when the next "
            "step had ended. Memory grows by as much in every step."
            if kept is not None
            else "The saved tensors were freed by backward; the nodes of all steps and the "
            "tensors that they lead to were not. Memory grows in every step.",
            owner_of_old_graph(analysis),
            *(
                ("Backward did not free them, because retain_graph was set:", place)
                if kept is not None and place is not None
                else ()
            ),
        ],
        fix="# detach the result here: it is no part of the loss"
        if leaves_loss is not None
        else f"{statement}  # or .item(): a value without its graph"
        if linked and (statement := detached_sum(made.location))
        else "total += loss.detach()  # or loss.item(): a value without its graph"
        if linked
        else "# store .detach(), or .item(): a value without its graph",
        confidence="likely" if linked and kept is not None else "hint",
        evidence=(made, leaves_loss),
    )
