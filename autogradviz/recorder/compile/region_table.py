"""The compiled regions of a recording: their ids, and the events that describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autogradviz.events import (
    HookInlined,
    OpCompiled,
    RecomputePlanned,
    RegionCompiled,
    SlotPlanned,
)
from autogradviz.recorder.compile.find_compiled_before import find_region
from autogradviz.recorder.compile.plan_region import (
    INPUT,
    forward_names,
    recomputed_ops,
    saved_slots,
)
from autogradviz.recorder.torch_internals.private_api import shape_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import torch

    from autogradviz.events import CompiledGraph
    from autogradviz.recorder.compile.read_graph_module import GraphOp
    from autogradviz.recorder.compile.region_facts import RegionFacts
    from autogradviz.recorder.session import Session


class CompiledRegions:
    """Assigns ids to compiled regions, and records what is known about them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ids: dict[int, int] = {}
        self._unplanned: set[int] = set()
        self._emit_op = session.emitter(OpCompiled)

    def find(self, function: Any) -> int | None:
        """Return the id of the region that a node's class belongs to, None if it is none.

        Args:
            function: the custom Function that AOTAutograd made for the region.
        """
        aot_number = getattr(function, "_aot_id", None)
        if aot_number is None:
            return None
        region_id = self._ids.get(aot_number)
        return self.add(find_region(function)) if region_id is None else region_id

    def plan_from_run(self, region_id: int, tensors: Iterable[torch.Tensor]) -> None:
        """Record the slots of a region whose graphs are lost, as its first run shows them."""
        if region_id not in self._unplanned:
            return
        self._unplanned.discard(region_id)
        for position, tensor in enumerate(tensors):
            self._session.emit(
                SlotPlanned, region_id, position, f"saved_{position}", "value",
                tuple(shape_of(tensor)), "", str(tensor.dtype).removeprefix("torch."),
                tensor.nbytes, False, "", "",
            )  # fmt: skip

    def add(self, facts: RegionFacts) -> int:
        """Record a region; return its id."""
        region_id = self._ids[facts.aot_number] = len(self._ids)
        emit = self._session.emit
        emit(
            RegionCompiled, region_id, facts.compile_id, facts.aot_number, facts.backend,
            facts.source, not facts.inference, facts.missing,
        )  # fmt: skip
        names = forward_names(facts.forward, facts.backward)
        sources = {f"{INPUT}{place}": each for place, each in enumerate(facts.sources, 1)}
        self._emit_graph(region_id, "joint", facts.joint, {}, sources)
        self._emit_graph(region_id, "forward", facts.forward, {}, sources)
        self._emit_graph(region_id, "backward", facts.backward, names, sources)
        self._emit_graph(region_id, "inference", facts.inference, {}, {})
        self._emit_slots(region_id, facts)
        for op, cause in recomputed_ops(facts.forward, facts.backward):
            emit(RecomputePlanned, region_id, op.name, cause)
        for hook in facts.hooks:
            emit(
                HookInlined, region_id, hook.op_name, not hook.reason, hook.reason,
                hook.pack_targets, hook.unpack_targets, hook.nbytes, hook.packed_nbytes,
            )  # fmt: skip
        return region_id

    def _emit_slots(self, region_id: int, facts: RegionFacts) -> None:
        slots = saved_slots(
            facts.forward, facts.backward, facts.joint or facts.forward, facts.blocked
        )
        if not slots and not facts.inference:
            self._unplanned.add(region_id)
        donated = frozenset(facts.donated)
        for position, slot in enumerate(slots):
            op = slot.op
            self._session.emit(
                SlotPlanned, region_id, position, op.name, slot.slot_kind, op.shape,
                op.symbolic_shape, op.dtype, op.nbytes, position in donated, slot.blocking_name,
                slot.blocked_because,
            )  # fmt: skip

    def _emit_graph(
        self,
        region_id: int,
        graph: CompiledGraph,
        ops: Iterable[GraphOp],
        names: Mapping[str, str],
        sources: Mapping[str, str],
    ) -> None:
        thread = self._session.threads.local.state.number
        emit = self._emit_op
        for position, op in enumerate(ops):
            emit(
                thread, None, region_id, graph, position, op.name, op.op_kind, op.target, op.shape,
                op.symbolic_shape, op.dtype, op.nbytes, *op.line, sources.get(op.name, ""),
                op.module_name, op.module_type, op.arguments, names.get(op.name, ""), op.policy,
                op.checkpoint_number, op.sums_gradients,
            )  # fmt: skip
