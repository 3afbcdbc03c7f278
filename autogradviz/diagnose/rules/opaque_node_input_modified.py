"""A backward read other content than its forward, in a node whose slots show no content.

Slots of custom Functions and of ``torch._foreach_*`` have no fingerprint. The inputs of the ops
that their forward and backward ran have one.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from autogradviz.diagnose.blame.raw_memory_or_thread_write import write_before_read
from autogradviz.diagnose.evidence.custom_function_ops import (
    class_name,
    forward_of,
    frame_in,
    ops_within,
)
from autogradviz.diagnose.evidence.judge_silent_write import bypass_reason, silent_write_fix
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.text_formatting import (
    describe_tensor,
    in_module,
    short_location,
)
from autogradviz.events import NO_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, Tensor
    from autogradviz.diagnose.evidence.facts import Evidence


class _Seen(NamedTuple):
    """A tensor that an op read or returned, with its fingerprint at that time."""

    op: Op
    tensor: Tensor
    content: int


@rule(
    "silent-write",
    mechanism="write",
    when=NoError(),
    group="saved tensor",
    after="sparse_parts_written",
)
def backward_read_modified(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first tensor whose content changed between forward and backward."""
    ran: dict[int, list[Op]] = defaultdict(list)
    for op in evidence.analysis.ops:
        if op.backward_node_id is not None and op.phase == "backward" and op.input_hashes:
            ran[op.backward_node_id].append(op)
    for node_id in sorted(ran):
        node = evidence.analysis.graph.nodes.get(node_id)
        found = _changed(evidence, node, ran[node_id]) if node is not None else None
        if node is not None and found is not None:
            yield _draft(evidence, node, *found)


def _changed(evidence: Evidence, node: Node, backward: list[Op]) -> tuple[_Seen, _Seen] | None:
    """Return the first tensor that a node's backward read with other content than its forward."""
    before = {met.tensor.tensor_id: met for met in reversed(_seen_in_forward(evidence, node))}
    written: set[int | None] = set()
    for op in backward if before else ():
        for met in _inputs_of(op):
            first = before.get(met.tensor.tensor_id)
            if first is None or met.tensor.storage_id in written:
                continue
            if met.content != first.content and _silent(evidence, node, first, met):
                return first, met
        written |= {tensor.storage_id for tensor in op.written}
    return None


def _seen_in_forward(evidence: Evidence, node: Node) -> list[_Seen]:
    """Return the inputs of a node's forward, and for foreach ops their results."""
    if node.op is not None:
        if node.op.name.startswith("_foreach_"):
            return [*_inputs_of(node.op), *_outputs_of(node.op)]
        return []
    owner = class_name(node)
    if owner == node.name or node.name.rstrip("0123456789") != node.name:
        return []  # not a custom Function: PyTorch numbers its own nodes
    first, last = forward_of(evidence, node)
    ops = [
        op
        for op in ops_within(evidence, first, last)
        if op.phase != "backward" and frame_in(evidence, op, owner, "forward") is not None
    ]
    touched = {tensor.storage_id for op in ops for tensor in op.written}
    return [met for op in ops for met in _inputs_of(op) if met.tensor.storage_id not in touched]


def _inputs_of(op: Op) -> list[_Seen]:
    pairs = zip(op.inputs, op.input_hashes, strict=False)
    return [_Seen(op, tensor, content) for tensor, content in pairs if content != NO_ID]


def _outputs_of(op: Op) -> list[_Seen]:
    pairs = zip(op.outputs, op.output_hashes, strict=False)
    return [_Seen(op, tensor, content) for tensor, content in pairs if content != NO_ID]


def _writes(evidence: Evidence, node: Node, before: _Seen, after: _Seen) -> list[Op]:
    """Return the writes between two reads that are not the backward's own."""
    between = evidence.writes_between(after.tensor.storage_id, before.op.seq, after.op.seq)
    return [write for write in between if write.backward_node_id != node.node_id]


def _silent(evidence: Evidence, node: Node, before: _Seen, after: _Seen) -> bool:
    """Return whether no other rule reports this change."""
    saved = node.op is not None or any(
        each.tensor.storage_id == after.tensor.storage_id for each in node.saved
    )
    if _writes(evidence, node, before, after):
        return saved  # else an attribute of ctx that an op wrote
    # A square matrix and its transpose share memory and shape, and differ in content.
    sizes = [size for size in after.tensor.shape if size > 1]
    return len(sizes) == len(set(sizes))


def _draft(evidence: Evidence, node: Node, before: _Seen, after: _Seen) -> Draft:
    write = next(iter(_writes(evidence, node, before, after)), None)
    culprit = (
        write.location
        if write is not None
        else write_before_read(evidence, before.op, after.op.seq)
    )
    name = evidence.name_of(after.tensor.storage_id) if after.tensor.storage_id is not None else ""
    victim = node.location or before.op.location
    return Draft(
        title=f"{name or f'A tensor that {node.name} needs'} was written before backward, past "
        "the version check",
        culprit=culprit,
        victim=victim,
        explanation=[
            f"The forward of {node.name}{in_module(node.module)} read "
            f"{describe_tensor(before.tensor)}:",
            before.op,
            f"Then {write.name} at {short_location(culprit)} wrote the same memory:"
            if write is not None
            else "Its content changed without a recorded write."
            + (" The source contains such a write:" if culprit is not None else ""),
            culprit,
            bypass_reason(write),
            f"so nothing was raised when its backward read it, in {after.op.name}: the "
            "gradient was computed from the new values.",
        ],
        fix=silent_write_fix(evidence, write, culprit),
        # A kernel inside a custom forward is not recorded.
        confidence="hint" if write is None else "certain" if culprit is not None else "likely",
        evidence=(before.op, write, after.op, node),
    )
