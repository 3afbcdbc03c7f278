"""A tensor of an earlier graph, used up by a backward or a step, that a later graph took."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.events import OldGraphHeld

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis, Node, Op
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.events import OptimizerStepped


class Taken(NamedTuple):
    """A storage of an earlier graph that an op of a later graph took."""

    storage_id: int
    before: Op  # made the tensor
    after: Op  # took it


class Reuse(NamedTuple):
    """A tensor of an earlier graph, and the op that took it."""

    before: Op  # made the tensor
    after: Op  # the first op that took it after the moment
    taken: tuple[Taken, ...]  # what the later graph took from the earlier one
    seen: bool  # the recording shows the tensor, as an output of one and an input of the other
    remade: bool  # the line that made it ran again afterwards: each step makes one
    repeats: bool  # it was made or taken in a step, not by two losses of one step
    first_reader: Op | None  # of the tensor, in the earlier graph
    not_trained: bool  # optimizers stepped in between, and none with what made the tensor
    updated: OptimizerStepped | None  # wrote what made the tensor, before the later backward


def find_reuse(
    evidence: Evidence, failed: Node, moment: int, backward_id: int | None
) -> Reuse | None:
    """Return the first op by which a failed backward reached a node from before a moment.

    Args:
        evidence: the recording.
        failed: the node of the earlier graph at which the backward failed.
        moment: the event after which its graph must not be used: it was freed, or its weights
            were updated.
        backward_id: the backward that failed.
    """
    nodes, graph = evidence.analysis.graph.nodes, evidence.causal_graph
    started = evidence.backward(backward_id)
    ahead = graph.reachable(started.root_ids) if started is not None else set(nodes)
    crossing = []
    waiting, seen = [failed.node_id], {failed.node_id}
    while waiting:  # from the failed node to those that pass gradients to it
        target = waiting.pop()
        before = nodes[target].op
        for edge in evidence.edges_to[target]:
            after = nodes[edge.source].op
            if edge.source in seen or edge.source not in ahead:
                continue
            if after is not None and before is not None and before.seq < moment < after.seq:
                crossing.append((after, before))
            elif after is None or after.seq < moment:
                seen.add(edge.source)
                waiting.append(edge.source)
    if not crossing:
        return None
    after, before = min(crossing, key=lambda pair: pair[0].seq)
    given = storages(before.outputs)
    earlier = [op for op in evidence.analysis.ops if op.seq < moment and op.phase == "forward"]
    readers = [op for op in earlier if op.seq > before.seq and storages(op.inputs) & given]
    alike = [op for op in earlier if op.location == after.location]
    leaves = _leaves_behind(evidence, before)
    until = started.seq if started is not None else after.seq
    remade = any(op.seq > moment and op.stack_id == before.stack_id for op in evidence.analysis.ops)
    return Reuse(
        before=before,
        after=after,
        taken=_taken(evidence, ahead, moment),
        seen=bool(given & storages(after.inputs)),
        remade=remade,
        repeats=remade
        or any(op.stack_id == after.stack_id for op in alike)
        or (bool(alike) and not any(op in readers for op in alike)),
        first_reader=next((op for op in readers if op.sequence_nr is not None), None),
        not_trained=_not_trained(evidence, leaves, moment),
        updated=next(_updates(evidence, leaves, moment, until), None),
    )


def last_shared_op(evidence: Evidence, failed: Node, ran: set[int]) -> Op | None:
    """Return the last op of a freed graph that leads to the failed node and to the later loss.

    Args:
        evidence: the recording.
        failed: the node at which the later backward failed.
        ran: the nodes that the first backward ran.
    """
    nodes, found = evidence.analysis.graph.nodes, None
    waiting, seen = [failed.node_id], {failed.node_id}
    while waiting:
        target = waiting.pop()
        op = nodes[target].op
        above = {edge.source for edge in evidence.edges_to[target]}
        if above - ran and op is not None and (found is None or op.seq > found.seq):
            found = op
        fresh = above & ran - seen
        seen |= fresh
        waiting += fresh
    return found


def _leaves_behind(evidence: Evidence, op: Op) -> set[int]:
    """Return the leaves from which an op's result was computed with a graph."""
    graph = evidence.causal_graph
    behind = graph.reachable([] if op.node_id is None else [op.node_id])
    return {graph.leaves[node_id] for node_id in behind & graph.leaves.keys()}


def _not_trained(evidence: Evidence, leaves: set[int], moment: int) -> bool:
    steps = [event for event in evidence.causal_graph.steps if event.seq > moment]
    return bool(steps and leaves) and not any(leaves & set(step.tensor_ids) for step in steps)


def _updates(
    evidence: Evidence, leaves: set[int], after: int, before: int
) -> Iterator[OptimizerStepped]:
    """Yield the steps between two events that updated any of some leaves."""
    graph = evidence.causal_graph
    for step in graph.steps:
        if after < step.seq < before and leaves & set(graph.updated_in(step)):
            yield step


def _taken(evidence: Evidence, ahead: set[int], moment: int) -> tuple[Taken, ...]:
    """Return the tensors of the earlier graph that the later one took, once for each line."""
    nodes = evidence.analysis.graph.nodes
    found: dict[tuple[int, int | None], Taken] = {}
    for node_id in sorted(ahead):
        after = nodes[node_id].op if node_id in nodes else None
        for edge in evidence.edges_from[node_id] if after is not None else ():
            before = nodes[edge.target].op
            if after and before is not None and before.seq < moment < after.seq:
                for storage in storages(before.outputs) & storages(after.inputs):
                    found.setdefault((storage, after.stack_id), Taken(storage, before, after))
    return tuple(found.values())


def owner_of_old_graph(analysis: Analysis) -> str:
    """Return a sentence about the owner of the oldest live node, "" if none was recorded."""
    for event in analysis.log.of(OldGraphHeld):
        return (
            f"When the recording ended, {event.node_name} of an earlier step was kept alive by "
            f"{_in_words(event.owner_root, event.owner_path)}."
        )
    return ""


_VARIABLE: Final = re.compile(r"(?:global|local) (\w+) of ")
_STEP: Final = re.compile(r"\w+((?:\[[^\]]*\]|\.\w+)+)")


def _in_words(root: str, path: str) -> str:
    """Return "history[0] (global history of module __main__): Tensor.grad_fn > MulBackward0".

    The lists, dicts and attributes at the beginning of a path are written as the program does.
    """
    variable = _VARIABLE.match(root)
    steps = path.split(" > ")
    expression = variable[1] if variable is not None else ""
    while expression and steps and not steps[0].startswith("Tensor."):
        step = _STEP.fullmatch(steps[0])
        if step is None:
            break
        expression += step[1]
        steps = steps[1:]
    rest = f": {' > '.join(steps)}" if steps and steps[0] else ""
    same = variable is None or expression == variable[1]
    return f"{root}{rest}" if same else f"{expression} ({root}){rest}"
