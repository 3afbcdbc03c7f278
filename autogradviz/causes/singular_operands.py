"""Ops that had operands at which they, or their derivatives, are not finite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.diagnose.evidence.values_not_finite import INTENDED
from autogradviz.events import (
    BackwardStarted,
    LossRead,
    NormRead,
    SingularOperandRead,
    StepNormRead,
)

_SAVES_RESULT: Final = {"SoftmaxBackward0", "LogSoftmaxBackward0"}
"""Nodes of which only the result is read, and NaN in it."""
_DEPTH: Final = 3
"""Ops before one that saves no operands, such as a sum."""

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
    # The gradients of an earlier backward may have made the parameters NaN.
    intact = in_forward or _gradients_were_finite(graph, first_bad)
    clear = [e for e in of_first if not e.not_finite and (intact or not _may_pass_nan(graph, e))]
    singular = sorted(_ops(graph, clear), key=lambda one: one[0])
    not_finite = [event for event in of_first if event.not_finite]
    sure = [event for event in not_finite if _had_finite(graph, event, of_first, intact=intact)]
    # Where what is not finite is from is unknown: data, a checkpointed region, a constant.
    unknown = [_origin(graph, event) for event in not_finite if event not in sure]
    found = singular or sorted(_ops(graph, sure), key=lambda one: one[0])
    return [] if unknown and (not found or min(unknown) < found[0][0]) else found


def _bad_backwards(graph: CausalGraph) -> set[int]:
    """Return the backwards that started from a loss that was NaN or infinite."""
    log = graph.analysis.log
    found = {event.backward_id for event in log.of(LossRead) if event.loss is None}
    found |= {e.backward_id for e in log.of(NormRead) if e.place == "root" and e.norm is None}
    return found


def _gradients_were_finite(graph: CausalGraph, backward_id: int | None) -> bool:
    """Return whether the norms of the last backward before one were read, and were finite."""
    if backward_id is None:
        return False
    log = graph.analysis.log
    earlier = [e.backward_id for e in log.of(BackwardStarted) if e.backward_id < backward_id]
    norms = [e.norm for e in log.of(StepNormRead) if earlier and e.backward_id == max(earlier)]
    return bool(norms) and None not in norms


def _may_pass_nan(graph: CausalGraph, event: SingularOperandRead) -> bool:
    """Return whether an op may have had the NaN of its result in an operand already."""
    node = graph.analysis.graph.nodes.get(event.node_id)
    return node is not None and node.name in _SAVES_RESULT


def _not_survived(
    graph: CausalGraph, evidence: Evidence, read: list[SingularOperandRead]
) -> list[SingularOperandRead]:
    """Return the operands read in the last backward of each line, if no later loss was finite.

    With a NaN gradient the parameters, and the next loss of the same line, would be NaN.
    """
    lines = {e.backward_id: evidence.backward_line(e.backward_id)
             for e in graph.analysis.log.of(BackwardStarted)}  # fmt: skip
    finite: dict[object, int] = {}
    for loss in graph.analysis.log.of(LossRead):
        if loss.loss is not None:
            line = lines.get(loss.backward_id)
            finite[line] = max(loss.backward_id, finite.get(line, loss.backward_id))
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


def _had_finite(
    graph: CausalGraph, event: SingularOperandRead, read: list[SingularOperandRead], *, intact: bool
) -> bool:
    """Return whether the op that gave what is not finite had operands that are known as finite."""
    analysis = graph.analysis
    leaves: set[int | None] = {analysis.tensors[each].storage_id for each in graph.leaves.values()}
    return _is_first(graph, _origin(graph, event), read, leaves if intact else set(), _DEPTH)


def _is_first(
    graph: CausalGraph,
    index: int,
    read: list[SingularOperandRead],
    finite: set[int | None],
    depth: int,
) -> bool:
    """Return whether each operand of an op was saved and finite, or computed from such ones.

    Args:
        graph: the causal graph of the recording.
        index: of the op.
        read: in the same backward.
        finite: storages that are known as finite.
        depth: ops before this one that may save nothing.
    """
    node = graph.node_of_op.get(index)
    if node is None or not depth:
        return False
    bad = {each.slot for each in read if each.node_id == node and each.not_finite}
    known = {
        each.tensor.tensor_id
        for each in graph.analysis.saved.values()
        if each.node_id == node and each.packed_by == "pytorch" and each.slot not in bad
    }
    tensors = graph.analysis.tensors
    return not bad and all(
        tensor in known
        or tensors[tensor].storage_id in finite
        or _is_first(graph, made, read, finite, depth - 1)
        for tensor, made in zip(graph.inputs[index], graph.producers(index), strict=True)
    )


def _position(graph: CausalGraph, index: int, event: SingularOperandRead) -> int | None:
    """Return the position of the input of an op that a slot holds, None if it is not known."""
    saved = {
        each.tensor.tensor_id
        for each in graph.analysis.saved.values()
        if each.node_id == event.node_id and each.slot == event.slot
    }
    given = graph.inputs[index]
    return next((at for at, tensor in enumerate(given) if tensor in saved), None)
