"""A custom Function kept a tensor as a ctx attribute, and it was written before backward.

``ctx.x = x`` keeps a tensor without saving it: PyTorch records and checks no version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.analysis.causal_graph import NO_OP
from autogradviz.diagnose.evidence.custom_function_ops import (
    applied_at,
    class_name,
    forward_of,
    frame_in,
    ops_within,
)
from autogradviz.diagnose.evidence.facts import fully_written
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.source.name_writes import attribute_assignment
from autogradviz.diagnose.text_formatting import in_module, short_location
from autogradviz.events import NO_ID, ContextTensorKept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


@rule("ctx-attribute-written", mechanism="write", when=NoError(), group="saved tensor")
def ctx_attribute_written(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first ctx attribute that was written before backward read it."""
    nodes = evidence.analysis.graph.nodes
    custom = evidence.custom_function_nodes
    for index, op in enumerate(evidence.analysis.ops if custom else ()):
        if op.backward_node_id not in custom:
            continue
        if op.recompute_id is not None:
            continue  # PyTorch's reentrant checkpoint is a custom Function too
        node = nodes[op.backward_node_id]
        if frame_in(evidence, op, class_name(node), "backward") is None:
            continue
        for storage_id in _read(evidence, index, op):
            found = _written_since(evidence, node, op, storage_id)
            if found is not None and _computes_gradient(evidence, index, op):
                yield _draft(evidence, node, op, *found)


def _read(evidence: Evidence, index: int, op: Op) -> dict[int, None]:
    """Return the storages whose values an op reads and does not write."""
    written = {tensor.storage_id for tensor in op.written}
    found: dict[int, None] = {}
    for position in evidence.causal_graph.value_inputs(index):
        storage_id = op.inputs[position].storage_id
        known = op.input_versions[position : position + 1] not in ((), (NO_ID,))
        if known and storage_id is not None and storage_id not in written:
            found[storage_id] = None
    return found


def _computes_gradient(evidence: Evidence, index: int, read: Op) -> bool:
    """Return whether the result of an op in a backward can be in a gradient.

    Another node reads what was computed from it, it enters a graph that the backward made, or it
    is a new tensor that nothing reads: the backward may return that. Numbers, results of an integer
    type and what only updates older memory, such as a statistic, are in no gradient.
    """
    graph, ops = evidence.causal_graph, evidence.analysis.ops
    derived: set[int] = set()
    unread: set[int] = set()
    for at in range(index, len(ops)):
        op = ops[at]
        if op.phase == "forward":
            break
        keys = graph.inputs_memory[at]
        taken = {keys[position] for position in graph.value_inputs(at)} & derived
        if at != index and not taken:
            continue
        if op.backward_node_id != read.backward_node_id or op.sequence_nr is not None:
            return True
        unread -= taken
        made = {graph.memory(each) for each in graph.outputs[at] if each in graph.differentiable}
        # Masks and indices are in no gradient, but what is computed with them may be.
        results = (*graph.outputs[at], *graph.written[at])
        derived |= {graph.memory(each) for each in results}
        unread |= {key for key in made if graph.creators.get(key, NO_OP) >= index}
    return bool(unread)


def _written_since(
    evidence: Evidence, node: Node, read: Op, storage_id: int
) -> tuple[Op, Op] | None:
    """Return the op of a node's forward that used a storage, and the first write after it."""
    if any(saved.tensor.storage_id == storage_id for saved in node.saved):
        return None  # PyTorch checks this one
    writes = [write for write in evidence.writers.get(storage_id, ()) if write.seq < read.seq]
    if any(w.backward_node_id == node.node_id and storage_id in fully_written(w) for w in writes):
        return None  # backward itself filled it
    if not writes:
        return None  # few tensors are written: skip the search below
    owner = class_name(node)
    first, last = forward_of(evidence, node)
    used = [
        op
        for op in ops_within(evidence, first, last)
        if any(t.storage_id == storage_id for t in (*op.inputs, *op.outputs))
        and frame_in(evidence, op, owner, "forward") is not None
    ]
    for write in writes if used else ():
        # The forward of this call may write; that of another call may not.
        own = write.seq < last and frame_in(evidence, write, owner, "forward") is not None
        if used[0].seq < write.seq and not own:
            return used[0], write
    return None


def _recomputed_line(evidence: Evidence, read: Op) -> SourceLocation | None:
    """Return the first line that a backward reran, with gradients on, from the tensor it read."""
    return next(
        (
            op.location
            for op in evidence.analysis.ops
            if op.seq > read.seq
            and op.backward_node_id == read.backward_node_id
            and op.sequence_nr is not None
            and op.location is not None
            and read.location is not None
            and op.location.function != read.location.function
        ),
        None,
    )


def _kept_in_region(evidence: Evidence, node: Node, forward: Op) -> SourceLocation | None:
    """Return the line of a checkpointed region that set an attribute of ``ctx``.

    A recomputation provides new saved tensors, but the attributes of the first run's ``ctx`` stay.
    """
    if forward.region_id is None:
        return None
    tensors = {t.tensor_id for t in (*forward.inputs, *forward.outputs)}
    for event in evidence.analysis.log.of(ContextTensorKept):
        if event.node_id == node.node_id and event.tensor_id in tensors:
            near = evidence.analysis.location(event.stack_id) or node.location
            return attribute_assignment(near, event.attribute)
    return None


def _draft(evidence: Evidence, node: Node, read: Op, forward: Op, write: Op) -> Draft:
    kept = _kept_in_region(evidence, node, forward)
    return Draft(
        title=f"{node.name} read a tensor that was written after its forward",
        culprit=kept or write.location,
        victim=_recomputed_line(evidence, read)
        or (applied_at(evidence, node) if kept is not None else None)
        or node.location
        or forward.location,
        explanation=[
            f"The forward of {class_name(node)}{in_module(node.module)} used a tensor and "
            "kept it without save_for_backward:",
            kept or forward,
            f"Then {write.name} wrote the same memory:",
            write,
            f"and its backward read it at {short_location(read.location)}:",
            read,
            "Attributes of ctx have no version check, so nothing was raised, and "
            "the gradient was computed from the new values.",
            "It was called in a checkpointed region: recomputation provides new saved "
            "tensors, but leaves the attributes of the first run's ctx as they are."
            if kept is not None
            else "",
        ],
        fix="# write to a clone, or after backward(); and let PyTorch check it:\n"
        "ctx.save_for_backward(x)  # in forward: such a write then raises an error\n"
        "(x,) = ctx.saved_tensors  # in backward"
        if kept is None
        else "ctx.save_for_backward(x)  # in forward: PyTorch then checks the version\n"
        "(x,) = ctx.saved_tensors  # in backward",
        confidence="certain" if write.location is not None and kept is None else "likely",
        evidence=(forward, write, read, node),
    )
