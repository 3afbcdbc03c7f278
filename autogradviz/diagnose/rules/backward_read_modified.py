"""A backward read other content than its forward did, and no slot of its node could tell.

Slots of custom Functions and of ``torch._foreach_*`` show no content. What their operators took,
forward and backward, has a fingerprint each.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from autogradviz.diagnose.evidence.custom_functions import (
    class_name,
    forward_of,
    frame_in,
    ops_within,
)
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, shape, short, where
from autogradviz.diagnose.rule import NoError, rule
from autogradviz.diagnose.rules.silent_write import fix_for, unseen_writer, why
from autogradviz.events import NO_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, Tensor
    from autogradviz.diagnose.evidence.facts import Evidence


class _Met(NamedTuple):
    """One tensor that an op met, with its content's fingerprint then."""

    op: Op
    tensor: Tensor
    content: int


@rule("silent-write", when=NoError(), priority=290, at_most=None)
def find_read_back(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the first tensor that a backward read changed, past every check."""
    ran: dict[int, list[Op]] = defaultdict(list)
    for op in evidence.analysis.ops:
        if op.backward_node_id is not None and op.phase == "backward" and op.input_hashes:
            ran[op.backward_node_id].append(op)
    for node_id in sorted(ran):
        node = evidence.analysis.graph.nodes.get(node_id)
        found = _changed(evidence, node, ran[node_id]) if node is not None else None
        if node is not None and found is not None:
            yield _describe(evidence, node, *found)
            return


def _changed(evidence: Evidence, node: Node, backward: list[Op]) -> tuple[_Met, _Met] | None:
    """Return the first tensor that a node's forward and its backward met with other content."""
    before = {met.tensor.tensor_id: met for met in reversed(_met_forward(evidence, node))}
    written: set[int | None] = set()
    for op in backward if before else ():
        for met in _taken(op):
            first = before.get(met.tensor.tensor_id)
            if first is None or met.tensor.storage_id in written:
                continue
            if met.content != first.content and _silent(evidence, node, first, met):
                return first, met
        written |= {tensor.storage_id for tensor in op.written}
    return None


def _met_forward(evidence: Evidence, node: Node) -> list[_Met]:
    """Return what a node's forward took, and gave where PyTorch may have saved that."""
    if node.op is not None:
        if node.op.name.startswith("_foreach_"):
            return [*_taken(node.op), *_given(node.op)]
        return []
    owner = class_name(node)
    if owner == node.name or node.name.rstrip("0123456789") != node.name:
        return []  # no custom Function's: PyTorch numbers its own
    first, last = forward_of(evidence, node)
    ops = [
        op
        for op in ops_within(evidence, first, last)
        if op.phase != "backward" and frame_in(evidence, op, owner, "forward") is not None
    ]
    touched = {tensor.storage_id for op in ops for tensor in op.written}
    return [met for op in ops for met in _taken(op) if met.tensor.storage_id not in touched]


def _taken(op: Op) -> list[_Met]:
    pairs = zip(op.inputs, op.input_hashes, strict=False)
    return [_Met(op, tensor, content) for tensor, content in pairs if content != NO_ID]


def _given(op: Op) -> list[_Met]:
    pairs = zip(op.outputs, op.output_hashes, strict=False)
    return [_Met(op, tensor, content) for tensor, content in pairs if content != NO_ID]


def _writes(evidence: Evidence, node: Node, before: _Met, after: _Met) -> list[Op]:
    """Return the writes between two meetings that are not the backward's own."""
    between = evidence.writes_between(after.tensor.storage_id, before.op.seq, after.op.seq)
    return [write for write in between if write.backward_node_id != node.node_id]


def _silent(evidence: Evidence, node: Node, before: _Met, after: _Met) -> bool:
    """Return whether this is a change that no other family tells."""
    saved = node.op is not None or any(
        each.tensor.storage_id == after.tensor.storage_id for each in node.saved
    )
    if _writes(evidence, node, before, after):
        return saved  # else an attribute of ctx that an op wrote
    # A square and its transpose are one window on one memory, and hold other contents.
    sizes = [size for size in after.tensor.shape if size > 1]
    return len(sizes) == len(set(sizes))


def _describe(evidence: Evidence, node: Node, before: _Met, after: _Met) -> Finding:
    write = next(iter(_writes(evidence, node, before, after)), None)
    culprit = (
        write.location if write is not None else unseen_writer(evidence, before.op, after.op.seq)
    )
    name = evidence.name_of(after.tensor.storage_id) if after.tensor.storage_id is not None else ""
    victim = node.location or before.op.location
    return Finding(
        slug="silent-write",
        title=f"{name or f'What {node.name} needs'} was written before backward, past the "
        "version check",
        culprit=culprit,
        victim=victim,
        explanation=fit(
            [
                f"The forward of {node.name}{where(node.module)} read {shape(before.tensor)}:",
                quoted(before.op.location),
                f"Then {write.name} at {short(culprit)} wrote the same memory:"
                if write is not None
                else "Its content changed, and no operator was seen writing it."
                + (" The source has such a write:" if culprit is not None else ""),
                quoted(culprit),
                why(write),
                f"so nothing was raised when its backward read it, in {after.op.name}: the "
                "gradient was computed from the new values.",
            ]
        ),
        fix=fix_for(evidence, write, culprit),
        # Nobody sees what a kernel does within a custom forward.
        confidence="hint" if write is None else "certain" if culprit is not None else "likely",
        events=(before.op.seq, *((write.seq,) if write is not None else ()), after.op.seq),
        nodes=(node.node_id,),
    )
