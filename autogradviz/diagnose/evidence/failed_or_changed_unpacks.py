"""Evidence about unpacks that failed, or whose value had changed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.diagnose.finding_text import slot_name
from autogradviz.events import BackwardStarted, NodeStarted, VersionBumped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis, Node, Op, SavedTensor, SourceLocation, Tensor, Unpack
    from autogradviz.diagnose.evidence.evidence import Evidence


# --- the saved tensor whose unpack raised ---------------------------------------------------------


class FailedSave(NamedTuple):
    """The saved tensor whose unpack raised."""

    saved: SavedTensor | None  # None if the recording does not show it
    unpack: Unpack | None  # the last of this saved tensor
    name: str  # "MulBackward0.self", "a saved tensor"
    location: SourceLocation | None  # the line that saved it


def failed_save(evidence: Evidence) -> FailedSave:
    """Return the saved tensor whose unpack raised, the innermost of nested ones."""
    if evidence.failed_unpack is None:
        return FailedSave(None, None, "a saved tensor", None)
    saved, _ = evidence.failed_unpack
    nodes = evidence.analysis.graph.nodes
    node = nodes.get(saved.node_id) if saved.node_id is not None else None
    location = saved.location or (node.location if node is not None else None)
    name = slot_name(saved, node.name if node is not None else None)
    return FailedSave(saved, saved.unpacks[-1], name, location)


# --- the versions in PyTorch's error message, and the writes that moved a counter past them -------
#
# Some nodes do not show the tensors that they saved, those of ``torch._foreach_*`` for example.
# Their op's inputs and outputs are known, and so are the two versions that PyTorch compared.


_VERSIONS: Final = re.compile(r"is at version (\d+); expected version (\d+)")

REPLACES_STORAGE: Final = "set_"
"""An op that gives a tensor another storage. It counts as a write: the counter stays with the
tensor."""


class Versions(NamedTuple):
    """The versions that PyTorch compared."""

    now: int
    expected: int


class Bump(NamedTuple):
    """A version counter that moved, and the op that moved it, if one was recorded."""

    event: VersionBumped
    op: Op | None
    location: SourceLocation | None


def versions_in_message(analysis: Analysis) -> Versions | None:
    """Return the versions in the error's message, None if it contains none."""
    found = _VERSIONS.search(analysis.error.message) if analysis.error is not None else None
    return Versions(int(found[1]), int(found[2])) if found else None


def first_bump_unrecorded(analysis: Analysis, saved: SavedTensor, version: int | None) -> bool:
    """Return whether the write that moved a counter past a version was not recorded."""
    past = (
        event
        for event in analysis.log.of(VersionBumped)
        if event.storage_id == saved.tensor.storage_id
        and version is not None
        and event.seen_version > version
    )
    first = next(past, None)
    return first is not None and (not first.op or first.version > (version or 0))


def bumps_in_message(evidence: Evidence, node: Node) -> list[Bump]:
    """Return the writes that the message can mean, those outside the node's own line first.

    Of each storage that the node may have saved, and whose version ended at the one in the
    message, that is the first write past the version that PyTorch expected.
    """
    versions = versions_in_message(evidence.analysis)
    if versions is None:
        return []
    error = evidence.analysis.error
    kept = [saved.tensor for saved in node.saved]
    if node.op is not None:
        kept += [*node.op.inputs, *node.op.outputs]
    kept += _sparse_parts(evidence, {t.tensor_id for t in kept if t.storage_id is None})
    first: dict[int, VersionBumped] = {}
    last: dict[int, int] = {}
    sources = _set_sources(evidence)
    known = {_resolve(sources, storage_id) for storage_id in storages(kept)}
    since = node.op.seq if node.op is not None else 0
    until = error.seq if error is not None else since
    for event in evidence.analysis.log.of(VersionBumped):
        if event.storage_id is None or not since < event.seq < until:
            continue
        counter = _resolve(sources, event.storage_id)
        if counter in known:
            last[counter] = event.seen_version
            if event.seen_version > versions.expected:
                first.setdefault(counter, event)
    found = [
        _bump(evidence, event) for counter, event in first.items() if last[counter] == versions.now
    ]
    # A write on the node's own line is usually a part of its forward.
    return sorted(found, key=lambda bump: bump.location == node.location)


def _bump(evidence: Evidence, event: VersionBumped) -> Bump:
    made = (op for op in evidence.analysis.ops if op.seq == event.op_seq)
    op = next(made, None) if event.op_seq is not None else None
    location = op.location if op is not None else evidence.analysis.location(event.stack_id)
    return Bump(event, op, location)


def _sparse_parts(evidence: Evidence, sparse: set[int]) -> list[Tensor]:
    """Return the values and indices that ops took out of sparse tensors."""
    return [
        tensor
        for op in (evidence.analysis.ops if sparse else ())
        if op.name.endswith(("values", "indices"))
        and any(given.tensor_id in sparse for given in op.inputs)
        for tensor in op.outputs
    ]


def _set_sources(evidence: Evidence) -> dict[int, int]:
    """Return the storage that a tensor had before ``set_``, by the one that it was given."""
    found: dict[int, int] = {}
    for op in evidence.analysis.ops:
        if op.name == REPLACES_STORAGE and op.inputs and op.outputs:
            before, after = op.inputs[0].storage_id, op.outputs[0].storage_id
            if before is not None and after is not None and before != after:
                found.setdefault(after, before)
    return found


def _resolve(sources: dict[int, int], storage_id: int) -> int:
    """Return the first storage in a chain of ``set_``."""
    seen = {storage_id}
    while storage_id in sources and sources[storage_id] not in seen:
        storage_id = sources[storage_id]
        seen.add(storage_id)
    return storage_id


# --- writes to saved tensors that do not change the version counter -------------------------------
#
# ``.data`` has its own counter, and fused optimizers write without raising any: PyTorch's version
# check passes, and the gradient is computed from other values.


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
