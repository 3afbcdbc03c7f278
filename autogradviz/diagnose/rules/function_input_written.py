"""The forward of a custom Function wrote an input in place, and did not call ``mark_dirty``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.diagnose.evidence.custom_function_ops import (
    applied_at,
    class_name,
    forward_of,
    frame_in,
    ops_within,
)
from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.text_formatting import describe_tensor
from autogradviz.events import FunctionMarked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

_AT_MOST: Final = 3


class _Written(NamedTuple):
    """A write to an input of a custom Function."""

    node: Node
    op: Op
    line: SourceLocation  # in the Function's forward
    storage_id: int


@rule(
    "function-input-written",
    mechanism="write",
    when=NoError(),
    group="saved tensor",
    after="sparse_parts_written",
    at_most=_AT_MOST,
    needs={"ops"},
)
def function_input_written(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each custom Function whose forward wrote a differentiable input."""
    reported = set()
    for node in sorted(evidence.analysis.graph.nodes.values(), key=lambda each: each.order):
        if node.name in reported or not node.name.endswith("Backward"):
            continue  # the nodes of PyTorch's own ops end with a digit
        found = _written(evidence, node)
        if found is not None:
            reported.add(node.name)
            yield _draft(evidence, found)


def _written(evidence: Evidence, node: Node) -> _Written | None:
    """Return the first write of a node's forward to an input that was not marked as dirty."""
    clean = _inputs(evidence, node) - _dirty(evidence, node)
    if not clean:
        return None
    for op in ops_within(evidence, *forward_of(evidence, node)):
        written = storages(op.written) & clean
        if not written or op.phase != "forward" or op.thread != node.thread:
            continue
        line = frame_in(evidence, op, class_name(node), "forward")
        if line is not None and line in evidence.analysis.user_stack(op.stack_id):
            return _Written(node, op, line, min(written))
    return None


def _inputs(evidence: Evidence, node: Node) -> set[int]:
    """Return the storages of the inputs for which a node computes gradients."""
    graph = evidence.analysis.graph
    found: set[int] = set()
    for edge in evidence.edges_from[node.node_id]:
        target = graph.nodes[edge.target]
        if target.parameter is not None:
            found |= storages((target.parameter.tensor,))
        elif target.op is not None and edge.input < len(target.op.outputs):
            found |= storages((target.op.outputs[edge.input],))
    return found


def _dirty(evidence: Evidence, node: Node) -> set[int]:
    """Return the storages of the inputs that a node's forward marked as dirty."""
    analysis = evidence.analysis
    return storages(
        analysis.tensors[tensor_id]
        for event in analysis.log.of(FunctionMarked)
        if event.mark == "mark_dirty" and event.sequence_nr == node.sequence_nr
        for tensor_id in event.tensor_ids
    )


def _draft(evidence: Evidence, found: _Written) -> Draft:
    node, op = found.node, found.op
    name = class_name(node)
    slot = next((s for s in node.saved if s.tensor.storage_id == found.storage_id), None)
    tensor = next(t for t in op.written if t.storage_id == found.storage_id)
    called = applied_at(evidence, node)
    return Draft(
        title=f"{name}.forward writes its input in place, and did not mark it as dirty",
        culprit=found.line,
        victim=called or node,
        explanation=[
            f"{op.name} in the forward of {name} wrote an argument ({describe_tensor(tensor)}) "
            "that requires a gradient:",
            found.line,
            "The caller still has this tensor, with the new values and the graph that computed "
            "the old ones:"
            if called is not None
            else "",
            called,
            f'{node.name} saved the same memory as "{slot.slot}": its backward reads the new '
            "values."
            if slot is not None
            else "",
            "Without ctx.mark_dirty autograd does not know of the write, so nothing was raised.",
        ],
        fix="x = x * w  # a new tensor; or ctx.mark_dirty(x), and save what backward needs before",
        confidence="likely",
        evidence=(op, node, slot),
    )
