"""Captured regions, their events, and what they save or recompute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from autogradviz.compiled_graphs.read_graph_text import (
    INPUT,
    ITEM,
    TANGENT,
    calls,
    is_view,
    read_graph_text,
    unpacked_name,
)
from autogradviz.events import (
    HookInlined,
    OpCompiled,
    RecomputePlanned,
    RegionCompiled,
    SlotPlanned,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from autogradviz.compiled_graphs.read_graph_text import GraphOp
    from autogradviz.events import CompiledGraph, Event, RecomputeCause, RegionSource, SlotKind


# --- the facts about one compiled region, as they are read from PyTorch ---------------------------


class InlinedHook(NamedTuple):
    """A pair of saved-tensor hooks that AOTAutograd compiled into a region, for one slot."""

    op_name: str
    reason: str  # why it was not inlined
    pack_targets: tuple[str, ...]
    unpack_targets: tuple[str, ...]
    nbytes: int
    packed_nbytes: int


class RegionFacts(NamedTuple):
    """All facts about a compiled region."""

    aot_number: int
    compile_id: str
    backend: str
    source: RegionSource
    missing: tuple[str, ...] = ()
    joint: Sequence[GraphOp] = ()
    forward: Sequence[GraphOp] = ()
    backward: Sequence[GraphOp] = ()
    inference: Sequence[GraphOp] = ()
    blocked: Mapping[str, str] = {}
    donated: Iterable[int] = ()
    hooks: Sequence[InlinedHook] = ()
    sources: Sequence[str] = ()  # the variable of each input
    memory_budget: float | None = None


MISSING_IN_TEXT: Final = ("reasons", "forward ops of backward ops", "modules")
"""The parts that the text of a graph lacks."""


def facts_of_cache_entry(entry: Any, aot_number: int, compile_id: str, backend: str) -> RegionFacts:
    """Return the facts about a region in an entry of AOTAutograd's cache: graphs as text."""
    joint, forward, backward = [
        read_graph_text(getattr(entry, f"aot_{name}_graph_str", None) or "")
        for name in ("joint", "forward", "backward")
    ]
    facts = RegionFacts(
        aot_number,
        compile_id,
        backend,
        "cache",
        donated=getattr(entry.runtime_metadata, "bw_donated_idxs", None) or (),
    )
    if not backward:
        return facts._replace(inference=forward, missing=("modules",))
    return facts._replace(joint=joint, forward=forward, backward=backward, missing=MISSING_IN_TEXT)


# --- the events that describe a compiled region ---------------------------------------------------


class Emit(Protocol):
    """A function that appends an event."""

    def __call__(self, kind: type[Event], /, *values: Any) -> None:
        """Append an event; ``values`` are its own fields, in their order."""


def emit_region(emit: Emit, region_id: int, facts: RegionFacts) -> None:
    """Append the events of a region: its ops, saved slots, recomputed ops and inlined hooks."""
    emit(
        RegionCompiled, region_id, facts.compile_id, facts.aot_number, facts.backend, facts.source,
        not facts.inference, facts.missing, facts.memory_budget,
    )  # fmt: skip
    names = forward_names(facts.forward, facts.backward)
    sources = {f"{INPUT}{place}": each for place, each in enumerate(facts.sources, 1)}
    _emit_graph(emit, region_id, "joint", facts.joint, {}, sources)
    _emit_graph(emit, region_id, "forward", facts.forward, {}, sources)
    _emit_graph(emit, region_id, "backward", facts.backward, names, sources)
    _emit_graph(emit, region_id, "inference", facts.inference, {}, {})
    _emit_slots(emit, region_id, facts)
    for op, cause in recomputed_ops(facts.forward, facts.backward):
        emit(RecomputePlanned, region_id, op.name, cause)
    for hook in facts.hooks:
        emit(
            HookInlined, region_id, hook.op_name, not hook.reason, hook.reason, hook.pack_targets,
            hook.unpack_targets, hook.nbytes, hook.packed_nbytes,
        )  # fmt: skip


def _emit_slots(emit: Emit, region_id: int, facts: RegionFacts) -> None:
    slots = saved_slots(facts.forward, facts.backward, facts.joint or facts.forward, facts.blocked)
    donated = frozenset(facts.donated)
    for position, slot in enumerate(slots):
        op = slot.op
        emit(
            SlotPlanned, region_id, position, op.name, slot.slot_kind, op.shape, op.symbolic_shape,
            op.dtype, op.nbytes, position in donated, slot.blocking_name, slot.blocked_because,
        )  # fmt: skip


def _emit_graph(
    emit: Emit,
    region_id: int,
    graph: CompiledGraph,
    ops: Iterable[GraphOp],
    names: Mapping[str, str],
    sources: Mapping[str, str],
) -> None:
    for position, op in enumerate(ops):
        emit(
            OpCompiled, region_id, graph, position, op.name, op.op_kind, op.target, op.shape,
            op.symbolic_shape, op.dtype, op.nbytes, *op.line, sources.get(op.name, ""),
            op.module_name, op.module_type, op.arguments, names.get(op.name, ""), op.policy,
            op.checkpoint_number, op.sums_gradients,
        )  # fmt: skip


# --- saved slots and recomputed ops, out of the two graphs of a compiled region -------------------


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
