"""Writes to saved tensors that do not change the version counter.

``.data`` has its own counter, and fused optimizers write without raising any: PyTorch's version
check passes, and the gradient is computed from other values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.events import BackwardStarted, NodeStarted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, SavedTensor, SourceLocation, Unpack
    from autogradviz.diagnose.evidence.facts import Evidence

# The gradient that needs a slot: if it was not computed, the slot was not read. By node name
# without its number, then slot.
_NEEDED_FOR: Final = {
    "AddmmBackward": {"mat2": 1, "mat1": 2},
    "MmBackward": {"mat2": 0, "self": 1},
    "BmmBackward": {"mat2": 0, "self": 1},
    "MulBackward": {"other": 0, "self": 1},
    "ConvolutionBackward": {"weight": 0, "input": 1},
    "LinearBackward": {"weight": 0, "input": 1},
}

# Slots of which backward reads only the shape.
_SHAPE_ONLY: Final = {
    ("MaxPool2DWithIndicesBackward", "self"),
    ("MaxPool3DWithIndicesBackward", "self"),
    ("AdaptiveMaxPool2DBackward", "self"),
    ("AdaptiveMaxPool3DBackward", "self"),
    ("NllLossBackward", "self"),
    ("NllLoss2DBackward", "self"),
    ("LinalgSolveExBackward", "A"),  # its factors are saved too
}


def reads_of_saves(evidence: Evidence) -> Iterator[tuple[Node, SavedTensor, Unpack]]:
    """Yield each unpack of a saved tensor with its node, in the order of the nodes."""
    for node in sorted(evidence.analysis.graph.nodes.values(), key=lambda node: node.order):
        for saved in node.saved:
            for unpack in saved.unpacks:
                yield node, saved, unpack


def computed_gradients(evidence: Evidence) -> dict[int, tuple[bool, ...]]:
    """Return, for each node that ran, which of its output gradients were used."""
    log = evidence.analysis.log
    took = set(log.column(NodeStarted, "node_id"))
    starts = log.of(BackwardStarted)
    took.update(node_id for event in starts for node_id in event.input_ids)
    named = {tensor_id for event in starts for tensor_id in event.input_tensor_ids}
    graph = evidence.causal_graph
    took.update(node_id for node_id, tensor_id in graph.leaves.items() if tensor_id in named)
    after = graph.next_nodes.items()
    return {node_id: tuple([each in took for each in nodes]) for node_id, nodes in after}


def is_needed(node: Node, saved: SavedTensor, computed: dict[int, tuple[bool, ...]]) -> bool:
    """Return whether a node read the content of a slot, judged by the gradients it computed."""
    gradients = computed.get(node.node_id)
    kind = node.name.rstrip("0123456789")
    if gradients is None or (kind, saved.slot) in _SHAPE_ONLY:
        return False
    place = _NEEDED_FOR.get(kind, {}).get(saved.slot or "")
    return place is None or place >= len(gradients) or gradients[place]


def silent_write_fix(evidence: Evidence, write: Op | None, culprit: SourceLocation | None) -> str:
    """Return the change that fixes a write past the version counter; None is an unrecorded one."""
    if write is None:
        return (
            "# give the graph its own memory: torch.tensor(array) or tensor.clone(),\n"
            "# or write after backward()"
        )
    if "fused" in write.name or evidence.in_optimizer(write):
        return "# call step() only after every backward() that uses these weights"
    if write.name.endswith("batch_norm"):
        return (
            "# call backward() before the BatchNorm runs in training mode again, or refresh the\n"
            "# statistics of a copy: copy.deepcopy(module)"
        )
    return (
        "# move this after backward(), and do not write through .data, so that PyTorch "
        f"checks it:\nwith torch.no_grad():\n    {_without_data(culprit)}"
    )


def instead_of(advice: str, write: Op | None) -> str:
    """Return advice with the line that wrote."""
    text = write.location.text if write is not None and write.location is not None else ""
    return f"# {advice}; instead of:\n# {text}"


def bypass_reason(write: Op | None) -> str:
    """Return why a write did not change the counter, as the beginning of a sentence."""
    if write is None:
        return "torch.autograd.graph.increment_version would have reported the write;"
    if "fused" in write.name:
        return "A fused optimizer does not raise the version counter,"
    if write.name.endswith("batch_norm"):
        return "BatchNorm moves its running statistics without raising their version counter,"
    return "The write went through .data or another alias with its own counter,"


def _without_data(culprit: SourceLocation | None) -> str:
    text = culprit.text if culprit is not None else "tensor.clamp_(...)"
    return text.replace(".data", "")
