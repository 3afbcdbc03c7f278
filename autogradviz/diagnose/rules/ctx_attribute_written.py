"""A custom Function kept a tensor on ctx itself, and it was written before backward read it.

``ctx.x = x`` keeps a tensor, but saves none: no version is remembered and none is checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.custom_functions import (
    applied_at,
    class_name,
    forward_of,
    frame_in,
    ops_within,
)
from autogradviz.diagnose.evidence.facts import filled
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, short, where
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import NoError, rule
from autogradviz.diagnose.rules.kept_alive_after_backward import assignment
from autogradviz.events import NO_ID, ContextTensorKept

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


PAGE: Final = Page(
    slug="ctx-attribute-written",
    title="A tensor kept on ctx was written before backward read it",
    means="""A custom Function kept a tensor as an attribute of ctx. Only what save_for_backward
    keeps has its version checked: the tensor was written, backward read the new values, and
    nothing was raised.""",
    happens="""ctx.x = x in forward, and x is written in place later.""",
    fix="""ctx.save_for_backward(x), so that PyTorch can tell; and write to a clone.""",
    example="""
import torch
import autogradviz


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2 * ctx.x


a = torch.rand(3, requires_grad=True)
with autogradviz.record() as trace:
    b = a * 1
    loss = Square.apply(b).sum()
    with torch.no_grad():
        b.add_(1)  # <-- named
    loss.backward()
""",
)


@rule("ctx-attribute-written", when=NoError(), priority=220, pages=(PAGE,), at_most=None)
def find_written_attributes(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the first tensor that a custom backward read in another state."""
    nodes = evidence.analysis.graph.nodes
    for op in evidence.analysis.ops:
        node = nodes.get(op.backward_node_id) if op.backward_node_id is not None else None
        if op.recompute_id is not None:
            continue  # PyTorch's own checkpoint is a Function too
        if node is None or frame_in(evidence, op, class_name(node), "backward") is None:
            continue
        for storage_id in _read(op):
            found = _written_since(evidence, node, op, storage_id)
            if found is not None:
                yield _describe(evidence, node, op, *found)
                return


def _read(op: Op) -> dict[int, None]:
    """Return the storages that an op reads and does not write."""
    written = {tensor.storage_id for tensor in op.written}
    pairs = zip(op.inputs, op.input_versions, strict=False)
    return {
        tensor.storage_id: None
        for tensor, version in pairs
        if tensor.storage_id is not None and version != NO_ID and tensor.storage_id not in written
    }


def _written_since(
    evidence: Evidence, node: Node, read: Op, storage_id: int
) -> tuple[Op, Op] | None:
    """Return the op of the node's forward that met a storage, and the first write after it."""
    if any(saved.tensor.storage_id == storage_id for saved in node.saved):
        return None  # PyTorch checks this one
    writes = [write for write in evidence.writers.get(storage_id, ()) if write.seq < read.seq]
    if any(w.backward_node_id == node.node_id and storage_id in filled(w) for w in writes):
        return None  # backward filled it anew
    if not writes:
        return None  # before every operator is looked through: few tensors are written at all
    owner = class_name(node)
    first, last = forward_of(evidence, node)
    met = [
        op
        for op in ops_within(evidence, first, last)
        if any(t.storage_id == storage_id for t in (*op.inputs, *op.outputs))
        and frame_in(evidence, op, owner, "forward") is not None
    ]
    for write in writes if met else ():
        # Another call's forward writes too; this one's own writes do no harm.
        own = write.seq < last and frame_in(evidence, write, owner, "forward") is not None
        if met[0].seq < write.seq and not own:
            return met[0], write
    return None


def _computed_anew(evidence: Evidence, read: Op) -> SourceLocation | None:
    """Return the first line that a backward ran again, with gradients on, from what it read."""
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
    """Return the line of a checkpointed region that hung a tensor on ``ctx``.

    A recomputation gives backward new saved tensors; what hangs on the first run's ``ctx`` stays.
    """
    if forward.region_id is None:
        return None
    used = {t.tensor_id for t in (*forward.inputs, *forward.outputs)}
    for event in evidence.analysis.log.of(ContextTensorKept):
        if event.node_id == node.node_id and event.tensor_id in used:
            near = evidence.analysis.location(event.stack_id) or node.location
            return assignment(near, event.attribute)
    return None


def _describe(evidence: Evidence, node: Node, read: Op, forward: Op, write: Op) -> Finding:
    kept = _kept_in_region(evidence, node, forward)
    return Finding(
        slug="ctx-attribute-written",
        title=f"{node.name} read a tensor that was written after its forward",
        culprit=kept or write.location,
        victim=_computed_anew(evidence, read)
        or (applied_at(evidence, node) if kept is not None else None)
        or node.location
        or forward.location,
        explanation=fit(
            [
                f"The forward of {class_name(node)}{where(node.module)} used a tensor and kept it "
                "without save_for_backward:",
                quoted(kept or forward.location),
                f"Then {write.name} wrote the same memory:",
                quoted(write.location),
                f"and its backward read it at {short(read.location)}:",
                quoted(read.location),
                "What hangs on ctx as an attribute has no version check, so nothing was raised and "
                "the gradient was computed from the new values.",
                "It was called in a checkpointed region: recomputation gives backward new saved "
                "tensors, but leaves the attributes of the first run's ctx as they are."
                if kept is not None
                else "",
            ]
        ),
        fix="ctx.save_for_backward(x)  # in forward: PyTorch then checks the version\n"
        "(x,) = ctx.saved_tensors  # in backward",
        confidence="certain" if write.location is not None and kept is None else "likely",
        events=(forward.seq, write.seq, read.seq),
        nodes=(node.node_id,),
    )
