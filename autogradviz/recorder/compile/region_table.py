"""The compiled regions of a recording, and their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from autogradviz.compiled_graphs.events_and_slots_of_regions import emit_region
from autogradviz.events import SlotPlanned
from autogradviz.recorder.compile.find_compiled_before import find_region
from autogradviz.recorder.torch_internals.private_api import shape_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from autogradviz.compiled_graphs.events_and_slots_of_regions import RegionFacts
    from autogradviz.recorder.session import Session

_NO_CALLS: Final = {"placeholder", "get_attr", "output"}


class CompiledRegions:
    """Assigns ids to compiled regions, and records the facts about them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ids: dict[int, int] = {}
        self._unplanned: set[int] = set()
        # The targets of the ops of each known graph, by region.
        self._graphs: list[dict[str, frozenset[str]]] = []

    def find(self, function: Any) -> int | None:
        """Return the id of the region that a node's class belongs to, None if it is none.

        Args:
            function: the custom Function that AOTAutograd made for the region.
        """
        aot_number = getattr(function, "_aot_id", None)
        # The Function around a compiled backward, for double backward, has a number too.
        if aot_number is None or not hasattr(function, "compiled_fw"):
            return None
        region_id = self._ids.get(aot_number)
        return self.add(find_region(function)) if region_id is None else region_id

    def add(self, facts: RegionFacts) -> int:
        """Record a region; return its id."""
        region_id = self._ids[facts.aot_number] = len(self._ids)
        known = {"forward": facts.forward, "backward": facts.backward}
        self._graphs.append(
            {
                name: frozenset(op.target for op in ops if op.op_kind not in _NO_CALLS)
                for name, ops in known.items()
                if ops
            }
        )
        emit_region(self._session.emit, region_id, facts)
        if not facts.backward and not facts.inference:
            self._unplanned.add(region_id)
        source = self._session.source
        for line in dict.fromkeys(op.line for op in (*facts.forward, *facts.inference)):
            if line.filename and not line.library:
                source.read(line.filename, line.lineno)
        return region_id

    def has_graph(self, region_id: int, graph: str) -> bool:
        """Return whether the ops of a graph are known: "forward" or "backward"."""
        return graph in self._graphs[region_id]

    def targets(self, region_id: int, graph: str) -> frozenset[str]:
        """Return the targets of the ops of a known graph."""
        return self._graphs[region_id][graph]

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
