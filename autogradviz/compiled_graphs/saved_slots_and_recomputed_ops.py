"""Saved slots and recomputed ops, out of the two graphs of a compiled region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.compiled_graphs.compiler_name_patterns import INPUT, ITEM, TANGENT, unpacked_name
from autogradviz.compiled_graphs.graph_op import calls
from autogradviz.compiled_graphs.view_ops import is_view

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from autogradviz.compiled_graphs.graph_op import GraphOp
    from autogradviz.events import RecomputeCause, SlotKind

NUMBERS: Final = frozenset({"SymInt", "SymFloat", "SymBool"})

_PLAIN: Final = ("", "PREFER_RECOMPUTE")
"""Decisions in a checkpointed region without a policy."""


class Slot(NamedTuple):
    """A value that the forward saves."""

    op: GraphOp
    slot_kind: SlotKind
    blocking_name: str
    blocked_because: str


def saved_slots(
    forward: Sequence[GraphOp],
    backward: Sequence[GraphOp],
    joint: Sequence[GraphOp],
    blocked: Mapping[str, str],
) -> list[Slot]:
    """Return the values that a forward saves for its backward, in the order of the slots.

    Args:
        forward: the forward graph.
        backward: the backward graph.
        joint: the joint graph, or the forward graph where it is unknown.
        blocked: why ops may not be computed again, by their names.
    """
    made = {op.name: op for op in forward}
    inputs = [op for op in backward if op.op_kind == "placeholder"]
    kept = [op for op in inputs if not op.name.startswith(TANGENT)]
    names = {op.name for op in kept}
    by_name = {op.name: op for op in joint}
    slots = []
    for op in kept:
        source = made.get(op.name)
        value = unpacked_name(op.name) if op.name not in by_name else op.name
        blocking = _find_blocking(value, names, by_name, blocked)
        slots.append(Slot(op, _slot_kind(op, source), blocking, blocked.get(blocking, "")))
    return slots


def _slot_kind(op: GraphOp, source: GraphOp | None) -> SlotKind:
    if op.is_size or op.dtype in NUMBERS:
        return "size"
    if source is None:  # the forward graph is lost
        return "input" if op.name.startswith(INPUT) else "value"
    return "input" if source.op_kind == "placeholder" else "value"


def _find_blocking(
    name: str, kept: set[str], joint: Mapping[str, GraphOp], blocked: Mapping[str, str]
) -> str:
    """Return the nearest op that may not run again to recompute a value, "" without one."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        here = waiting.pop(0)
        op = joint.get(here)
        if here in seen or op is None or (here in kept and here != name):
            continue
        seen.add(here)
        if op.op_kind == "placeholder":
            continue
        if here in blocked:
            return here
        waiting += op.arguments
    return ""


def recomputed_ops(
    forward: Sequence[GraphOp], backward: Sequence[GraphOp]
) -> Iterator[tuple[GraphOp, RecomputeCause]]:
    """Yield the ops of a backward graph that belong to the forward, and why they are there."""
    names = {op.name for op in calls(forward)}
    regions = _selective_checkpoints(forward)
    for op in calls(backward):
        # Text has no tags, but policies, which the ops of the backward itself have not.
        if op.name in names or op.tag == "is_forward" or (op.policy and not op.tag):
            yield op, _cause(op, regions)


def _selective_checkpoints(forward: Sequence[GraphOp]) -> set[int | None]:
    """Return the checkpointed regions with a policy: it saves a value that no later one uses.

    PyTorch itself marks what a later region uses to be saved.
    """
    inside = {op.name: op.checkpoint_number for op in calls(forward)}
    leaving = {
        name
        for op in calls(forward)
        for name in op.arguments
        if is_later_checkpoint(op.checkpoint_number, inside.get(name))
    }
    return {
        op.checkpoint_number
        for op in calls(forward)
        if op.policy.startswith("MUST_SAVE") and op.name not in leaving
    }


def is_later_checkpoint(one: int | None, other: int | None) -> bool:
    """Return whether one checkpointed region comes after another one."""
    return one is not None and other is not None and one > other


def _cause(op: GraphOp, selective: set[int | None]) -> RecomputeCause:
    if op.checkpoint_number is None and not op.policy:
        return "partitioner"
    selected = op.checkpoint_number in selective or op.policy not in _PLAIN
    return "policy" if selected else "checkpoint"


def forward_names(forward: Sequence[GraphOp], backward: Sequence[GraphOp]) -> dict[str, str]:
    """Return, by the name of each backward op, the name of the forward op that it differentiates.

    Both come from one autograd node and carry its sequence number. Of several forward ops of one
    node, the last that computes is taken: decompositions begin with preparations, and the
    partitioner adds views of results for the backward.
    """
    by_number: dict[int, str] = {}
    computed: set[int] = set()
    for op in calls(forward):
        if op.sequence_nr is None or op.target == ITEM:
            continue
        if not is_view(op.target):
            computed.add(op.sequence_nr)
        elif op.sequence_nr in computed:
            continue
        by_number[op.sequence_nr] = op.name
    known = {op.name for op in calls(forward)}
    names = {}
    for op in calls(backward):
        if op.name in known:
            names[op.name] = op.name
        elif op.sequence_nr in by_number and not op.sums_gradients:
            names[op.name] = by_number[op.sequence_nr]
    return names
