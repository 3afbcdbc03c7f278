"""The runs of compiled regions: the node of each, and the tensors that it saves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from autogradviz.events import MemoryBudgetChanged, RegionRan
from autogradviz.recorder.compile.observe_compilers import DEFAULT_BUDGET, memory_budget
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.recorder.compile.region_table import CompiledRegions
    from autogradviz.recorder.engine_interface import TensorIds
    from autogradviz.recorder.session import Session

_CHECKED: Final = "tensors_saved_for_backwards_with_vc_check_slice"
_UNCHECKED: Final = "tensors_saved_for_backwards_no_vc_check_slice"


_SLOTS: Final = "_raw_saved_tensors"
_OTHER_SLOTS: Final = "_tensors_no_vc_check"


class NodeIds(Protocol):
    """A table of nodes."""

    def id_of(self, node: Any) -> int:
        """Return a node's id."""


class RegionRuns:
    """Records the runs of compiled regions."""

    def __init__(
        self, session: Session, tensors: TensorIds, nodes: NodeIds, regions: CompiledRegions
    ) -> None:
        self._session = session
        self._tensors = tensors
        self._nodes = nodes
        self._regions = regions
        self._seen: set[int] = set()
        self._budget = DEFAULT_BUDGET

    def on_run(self, state: Any, ctx: Any, outputs: Sequence[Any]) -> None:
        """Record that a forward of a region is about to save some of its outputs."""
        if not self._session.observes():
            return
        budget = memory_budget()
        if budget is not None and budget != self._budget:
            self._budget = budget
            self._session.emit(MemoryBudgetChanged, budget)
        metadata = state.metadata
        saved = [
            *outputs[getattr(metadata, _CHECKED)],
            *outputs[getattr(metadata, _UNCHECKED)],
        ]
        self._emit(ctx, [each for each in saved if isinstance(each, torch.Tensor)], early=False)

    def on_node(self, node: Any, node_id: int) -> None:
        """Record the run of a walked node, if it ran before it could be observed."""
        if node_id in self._seen:
            self._seen.discard(node_id)  # nodes are walked once
            return
        slots = getattr(node, _SLOTS, None) or ()
        contents = [slot.data for slot in slots if slot.unpack_hook is None]
        saved = [*contents, *(getattr(node, _OTHER_SLOTS, None) or ())]
        self._emit(node, [each for each in saved if isinstance(each, torch.Tensor)], early=True)

    def _emit(self, node: Any, saved: list[torch.Tensor], *, early: bool) -> None:
        region = type(node)._forward_cls  # noqa: SLF001 - has no public name
        region_id = self._regions.find(region)
        if region_id is None:
            return
        with DisableTorchFunction():
            self._regions.plan_from_run(region_id, saved)
            tensor_ids, versions = self._tensors.intern_all(saved)
        node_id = self._nodes.id_of(node)
        if not early:
            self._seen.add(node_id)
        self._session.emit(
            RegionRan, region_id, node_id, node._sequence_nr(), tensor_ids, versions, early,  # noqa: SLF001
            stack_id=None if early else self._session.stack_id(),
        )  # fmt: skip
