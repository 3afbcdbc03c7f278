"""Ops that had operands at which they, or their derivatives, are not finite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.diagnose.evidence.values_not_finite import INTENDED
from autogradviz.events import BackwardStarted, LossRead, NormRead, SingularOperandRead

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis.causal_graph import CausalGraph
    from autogradviz.diagnose.evidence.evidence import Evidence

def find_singular_ops(
    graph: CausalGraph, evidence: Evidence, *, in_forward: bool
) -> list[tuple[int, SingularOperandRead]]:
    """Return the ops that gave the first NaN or infinity, as far as saved operands show it.

    Args:
        graph: the causal graph of the recording.
        evidence: of the same recording.
        in_forward: whether the first loss was not finite.

    Returns:
        Indices of ops, with what was read; empty if nothing that was read decides.
    """
    read = graph.analysis.log.of(SingularOperandRead)
    if not read:
        return []
    bad = _bad_backwards(graph)
    first_bad = min(bad, default=None)
    if not in_forward:
        before = [e for e in read if first_bad is None or e.backward_id < first_bad]
        before = [e for e in before if not e.not_finite and e.backward_id not in bad]
        found = _ops(graph, _not_survived(graph, evidence, before))
        if found:
            return sorted(found, key=lambda one: -one[0])
    of_first = [event for event in read if event.backward_id == first_bad]
    unknown = [event for event in of_first if event.not_finite and _may_be_data(graph, event)]
    return [] if unknown else sorted(_ops(graph, of_first), key=lambda one: one[0])


def _bad_backwards(graph: CausalGraph) -> set[int]:
    """Return the backwards that started from a loss that was NaN or infinite."""
    log = graph.analysis.log
    found = {event.backward_id for event in log.of(LossRead) if event.loss is None}
    found |= {e.backward_id for e in log.of(NormRead) if e.place == "root" and e.norm is None}
    return found


def _not_survived(
    graph: CausalGraph, evidence: Evidence, read: list[SingularOperandRead]
) -> list[SingularOperandRead]:
    """Return what was read in the last backward of each line, if no later loss was finite.

    With a NaN gradient the parameters, and the next loss of the same line, would be NaN.
    """
    lines = {e.backward_id: evidence.backward_line(e.backward_id)
             for e in graph.analysis.log.of(BackwardStarted)}  # fmt: skip
    finite: dict[object, int] = {}
    for event in graph.analysis.log.of(LossRead):
        if event.loss is not None:
            line = lines.get(event.backward_id)
            finite[line] = max(event.backward_id, finite.get(line, event.backward_id))
    places = graph.analysis
    survived = set()
    for event in read:
        index = graph.op_of_node.get(event.node_id, NO_OP)
        if index != NO_OP and event.backward_id < finite.get(lines.get(event.backward_id), -1):
            survived.add(places.location(graph.stacks[index]))
    return [
        event
        for event in read
        if (index := graph.op_of_node.get(event.node_id, NO_OP)) != NO_OP
        and places.location(graph.stacks[index]) not in survived
    ]


def _ops(
    graph: CausalGraph, read: Iterable[SingularOperandRead]
) -> list[tuple[int, SingularOperandRead]]:
    found = []
    for event in read:
        index = _origin(graph, event)
        if index != NO_OP and graph.op_names[index] not in INTENDED:
            found.append((index, event))
    return found


def _origin(graph: CausalGraph, event: SingularOperandRead) -> int:
    """Return the op that gave what was read, or that has its singular point there."""
    index = graph.op_of_node.get(event.node_id, NO_OP)
    if index == NO_OP or not event.not_finite or event.slot.startswith("result"):
        return index
    position = _position(graph, index, event)
    return NO_OP if position is None else graph.producers(index)[position]


def _may_be_data(graph: CausalGraph, event: SingularOperandRead) -> bool:
    """Return whether what is not finite may be from data, or from what has no gradient.

    Nothing is known of its contents: only ops with nodes save them.
    """
    index = graph.op_of_node.get(event.node_id, NO_OP)
    if index == NO_OP:
        return False
    origin = _origin(graph, event)
    if origin not in graph.node_of_op:
        return True
    leaves = set(graph.leaves.values())
    return any(
        made not in graph.node_of_op and tensor not in leaves
        for tensor, made in zip(graph.inputs[origin], graph.producers(origin), strict=True)
    )


def _position(graph: CausalGraph, index: int, event: SingularOperandRead) -> int | None:
    """Return which input of an op was saved in a slot, None if that is not known."""
    saved = {
        each.tensor.tensor_id
        for each in graph.analysis.saved.values()
        if each.node_id == event.node_id and each.slot == event.slot
    }
    given = graph.inputs[index]
    return next((at for at, tensor in enumerate(given) if tensor in saved), None)
