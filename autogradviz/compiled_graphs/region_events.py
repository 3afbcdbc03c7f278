"""The events that describe a compiled region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from autogradviz.compiled_graphs.compiler_name_patterns import INPUT
from autogradviz.compiled_graphs.saved_slots_and_recomputed_ops import (
    forward_names,
    recomputed_ops,
    saved_slots,
)
from autogradviz.events import (
    HookInlined,
    OpCompiled,
    RecomputePlanned,
    RegionCompiled,
    SlotPlanned,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from autogradviz.compiled_graphs.captured_region import RegionFacts
    from autogradviz.compiled_graphs.graph_op import GraphOp
    from autogradviz.events import CompiledGraph, Event


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
