"""What else is known of a node, in words: why backward came, and what a Function said or keeps."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes, short_location
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
from autogradviz.scene.formatting import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Node

_PAIRED: Final = {"user", "offload", "allow_mutation"}


class Notes:
    """Lines for nodes."""

    def __init__(self, analysis: Analysis) -> None:
        self._model = analysis
        self._lines: dict[int, dict[str, None]] = defaultdict(dict)  # by node id, each once
        self._leaves = {
            node.parameter.tensor.tensor_id: node_id
            for node_id, node in analysis.graph.nodes.items()
            if node.parameter is not None
        }
        self.kept: dict[int, list[ContextTensorKept]] = defaultdict(list)
        """Tensors that custom Functions keep on ``ctx``, by node id."""
        for event in analysis.log.of(BackwardStarted):
            self._note_ends(event)
        for kept in analysis.log.of(ContextTensorKept):
            self.kept[kept.node_id].append(kept)
            nbytes = format_bytes(analysis.tensors[kept.tensor_id].nbytes)
            self._add(kept.node_id, f"keeps {kept.slot}, {nbytes}, which nothing frees or checks")
        self._note_marks()
        self._note_moves()
        self._note_pairs()

    def of(self, nodes: Sequence[Node]) -> tuple[str, ...]:
        """Return the lines of a drawn node and of the leaves beside it."""
        lines = {line: None for node in nodes for line in self._lines.get(node.node_id, ())}
        return tuple(lines)

    def _add(self, node_id: int, line: str) -> None:
        self._lines[node_id][line] = None

    def _note_ends(self, event: BackwardStarted) -> None:
        """Tell where a backward began, and whose gradients it was asked for."""
        call = "backward" if event.accumulate else "autograd.grad"
        place = self._place(event.stack_id)
        for node_id in event.root_ids:
            self._add(node_id, f"a root of {call}{place}")
        leaves = (self._leaves.get(tensor_id, NO_ID) for tensor_id in event.input_tensor_ids)
        for node_id in {*event.input_ids, *leaves} - {NO_ID}:
            node = self._model.graph.nodes.get(node_id)
            leaf = None if node is None else node.parameter
            what = "this node" if leaf is None else leaf.name or "an unnamed leaf"
            self._add(node_id, f"the gradient of {what} was asked for by {call}{place}")

    def _note_marks(self) -> None:
        events = self._model.log.of(FunctionMarked)
        if not events:
            return
        nodes = {(n.thread, n.sequence_nr): i for i, n in self._model.graph.nodes.items()}
        for event in events:
            node_id = nodes.get((event.thread, event.sequence_nr))
            if node_id is not None:
                what = plural(len(event.tensor_ids), "tensor")
                self._add(node_id, f"{event.mark}: {what}{self._place(event.stack_id)}")

    def _note_moves(self) -> None:
        for event in self._model.log.of(TensorMoved):
            saved = self._model.saved.get(event.saved_id)
            if saved is not None and saved.node_id is not None:
                pinned = ", pinned" if event.pinned else ""
                slot, size = saved.slot or "a saved tensor", format_bytes(event.nbytes)
                self._add(saved.node_id, f"{slot} moved to {event.device}: {size}{pinned}")

    def _note_pairs(self) -> None:
        """Tell which pair of saved-tensor hooks keeps what: the innermost one on its thread."""
        log = self._model.log
        if not log.of(HooksEntered):
            return
        open_: dict[int, dict[int, HooksEntered]] = defaultdict(dict)  # by thread and pair
        for event in log.merged(HooksEntered, HooksLeft, TensorSaved):
            pairs = open_[event.thread]
            if isinstance(event, HooksEntered):
                pairs[event.pair_id] = event
            elif isinstance(event, HooksLeft):
                pairs.pop(event.pair_id, None)
            elif isinstance(event, TensorSaved) and pairs and event.packed_by in _PAIRED:
                pair, saved = pairs[max(pairs)], self._model.saved[event.saved_id]
                if event.node_id is None and saved.node_id is not None:  # else hooks of its own
                    line = f"{saved.slot or 'a tensor'} kept by {pair.function}"
                    self._add(saved.node_id, line + self._place(pair.stack_id))

    def _place(self, stack_id: int | None) -> str:
        location = self._model.location(stack_id)
        return "" if location is None else f" · {short_location(location)}"
