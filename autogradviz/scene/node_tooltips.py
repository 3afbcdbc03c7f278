"""Tooltip lines of nodes: roots and inputs of backward calls, ctx marks, moves, packing hooks."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes, location_in_folder, plural
from autogradviz.events import (
    NO_ID,
    BackwardStarted,
    ContextTensorKept,
    FunctionMarked,
    HooksEntered,
    HooksLeft,
    TensorMoved,
    TensorSaved,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Node

_HOOK_PAIRS: Final = {"user", "offload", "allow_mutation"}


class Annotations:
    """Collects the tooltip lines of all nodes."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._lines: dict[int, dict[str, None]] = defaultdict(dict)  # by node id, without repeats
        self._leaves = {
            node.parameter.tensor.tensor_id: node_id
            for node_id, node in analysis.graph.nodes.items()
            if node.parameter is not None
        }
        self.kept_on_ctx: dict[int, list[ContextTensorKept]] = defaultdict(list)
        """Tensors that custom Functions keep on ``ctx``, by node id."""
        for event in analysis.log.of(BackwardStarted):
            self._add_backward(event)
        for kept in analysis.log.of(ContextTensorKept):
            self.kept_on_ctx[kept.node_id].append(kept)
            nbytes = format_bytes(analysis.tensors[kept.tensor_id].nbytes)
            self._add(kept.node_id, f"keeps {kept.slot}, {nbytes}: no version check, never freed")
        self._add_marks()
        self._add_moves()
        self._add_hook_pairs()

    def of(self, nodes: Sequence[Node]) -> tuple[str, ...]:
        """Return the lines of a drawn node and its leaves."""
        lines = {line: None for node in nodes for line in self._lines.get(node.node_id, ())}
        return tuple(lines)

    def _add(self, node_id: int, line: str) -> None:
        self._lines[node_id][line] = None

    def _add_backward(self, event: BackwardStarted) -> None:
        """Annotate the roots of a backward call, and the inputs whose gradients it computes."""
        call = "backward" if event.accumulate else "autograd.grad"
        at = self._at(event.stack_id)
        for node_id in event.root_ids:
            self._add(node_id, f"a root of {call}{at}")
        leaves = (self._leaves.get(tensor_id, NO_ID) for tensor_id in event.input_tensor_ids)
        for node_id in {*event.input_ids, *leaves} - {NO_ID}:
            node = self._analysis.graph.nodes.get(node_id)
            leaf = None if node is None else node.parameter
            name = "this node" if leaf is None else leaf.name or "an unnamed leaf"
            self._add(node_id, f"gradient of {name} requested by {call}{at}")

    def _add_marks(self) -> None:
        """Annotate ``mark_dirty`` and ``mark_non_differentiable`` calls of custom Functions."""
        events = self._analysis.log.of(FunctionMarked)
        if not events:
            return
        nodes = {(n.thread, n.sequence_nr): i for i, n in self._analysis.graph.nodes.items()}
        for event in events:
            node_id = nodes.get((event.thread, event.sequence_nr))
            if node_id is not None:
                tensors = plural(len(event.tensor_ids), "tensor")
                self._add(node_id, f"{event.mark}: {tensors}{self._at(event.stack_id)}")

    def _add_moves(self) -> None:
        """Annotate saved tensors that hooks moved to another device."""
        for event in self._analysis.log.of(TensorMoved):
            saved = self._analysis.saved.get(event.saved_id)
            if saved is not None and saved.node_id is not None:
                pinned = ", pinned" if event.pinned else ""
                slot, size = saved.slot or "a saved tensor", format_bytes(event.nbytes)
                self._add(saved.node_id, f"{slot} moved to {event.device}: {size}{pinned}")

    def _add_hook_pairs(self) -> None:
        """Annotate saved tensors with the innermost pair of hooks of their thread."""
        log = self._analysis.log
        if not log.of(HooksEntered):
            return
        open_: dict[int, dict[int, HooksEntered]] = defaultdict(dict)  # by thread and pair
        for event in log.merged(HooksEntered, HooksLeft, TensorSaved):
            pairs = open_[event.thread]
            if isinstance(event, HooksEntered):
                pairs[event.pair_id] = event
            elif isinstance(event, HooksLeft):
                pairs.pop(event.pair_id, None)
            elif isinstance(event, TensorSaved) and pairs and event.packed_by in _HOOK_PAIRS:
                pair, saved = pairs[max(pairs)], self._analysis.saved[event.saved_id]
                if event.node_id is None and saved.node_id is not None:  # else the slot's own hooks
                    line = f"{saved.slot or 'a tensor'} packed by {pair.function}"
                    self._add(saved.node_id, line + self._at(pair.stack_id))

    def _at(self, stack_id: int | None) -> str:
        location = self._analysis.location(stack_id)
        return "" if location is None else f" · {location_in_folder(location)}"
