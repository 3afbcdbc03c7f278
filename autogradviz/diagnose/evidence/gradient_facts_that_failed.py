"""The facts about gradients that failed with ``verify``, as sentences, and the line that wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.finding_text import in_module

if TYPE_CHECKING:
    from autogradviz.analysis import Node, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.events import ChangedBy, FactKind, GradientFactFailed


_CHANGED: Final = {
    "hook": "a hook",
    "straight-through": "a custom Function that passes gradients where the derivative is zero",
    "gradient function": "a custom Function that only changes the gradient",
    "rounding hooks": "a pair of saved-tensor hooks that rounds",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedFact:
    """A gradient that is not the one that follows from the recorded forward.

    Attributes:
        fact: "node" (a node returned another gradient than the derivative of its op), "edge" (a
            node received another gradient than the sum of what was sent to it) or "leaf" (``.grad``
            did not grow by what arrived).
        node: the name of the autograd node.
        module: the module that made it.
        location: the line that made it.
        relative_error: the L2 norm of the difference, relative to the larger gradient; infinite if
            one of them is not finite.
        changed_by: "hook", "straight-through", "gradient function" or "rounding hooks" if the
            program changed it on purpose; "" if it is wrong.
        saved_tensor: the saved tensor of the node whose content is not that of the forward, "" if
            none was found.
        writer: the line that wrote that tensor, or an input of the op, between forward and
            backward; None if none is recorded.
        parameters: the parameters that the gradient reaches.
        event: the sequence number of the event.

    Example:
        >>> trace.certificate().failed
        ()
    """

    fact: FactKind
    node: str
    module: str
    location: SourceLocation | None
    relative_error: float
    changed_by: ChangedBy
    saved_tensor: str
    writer: SourceLocation | None
    parameters: tuple[str, ...]
    event: int

    def __str__(self) -> str:
        where = f"{self.location}" if self.location is not None else "an unknown line"
        text = f"{where}: {self.statement}"
        if self.writer is not None:
            text += f"; written at {self.writer}"
        return text

    @property
    def statement(self) -> str:
        """The error in one sentence, without a period."""
        node = f"{self.node}{in_module(self.module)}"
        size = f"{self.relative_error:.1%}" if self.relative_error < 10 else "more than 1,000 %"  # noqa: PLR2004
        if self.changed_by:
            return f"{_CHANGED[self.changed_by]} changed the gradient of {node} by {size}"
        if self.fact == "edge":
            return f"{node} received a gradient that is off by {size} from the sum of its parts"
        if self.fact == "leaf":
            name = ", ".join(self.parameters) or "a leaf"
            return f"the gradient of {name} did not grow by what arrived; it is off by {size}"
        slot = f'; its saved tensor "{self.saved_tensor}" has changed' if self.saved_tensor else ""
        return f"{node} returned a gradient that is off by {size} from its derivative{slot}"


def read_fact(evidence: Evidence, event: GradientFactFailed) -> FailedFact:
    """Return the gradient that an event reports."""
    analysis = evidence.analysis
    node = analysis.graph.nodes[event.node_id]
    origin = node if event.tensor_id is None else _feeding(evidence, node)
    names = evidence.causal_graph.parameters
    if event.tensor_id is not None:
        reached = {event.tensor_id} & names.keys()
    else:
        reached = evidence.causal_graph.reached_leaves(event.node_id)
    return FailedFact(
        fact=event.fact,
        node=node.name,
        module=origin.module,
        location=origin.location,
        relative_error=float("inf") if event.relative_error is None else event.relative_error,
        changed_by=event.changed_by,
        saved_tensor=event.written_slot,
        writer=None if event.changed_by else find_writer(evidence, event),
        parameters=tuple(sorted({names[each] for each in reached})),
        event=event.seq,
    )


def _feeding(evidence: Evidence, leaf: Node) -> Node:
    """Return the newest node that sends its gradient to a leaf; the leaf itself if none does."""
    nodes = evidence.analysis.graph.nodes
    sources = [nodes[edge.source] for edge in evidence.edges_to[leaf.node_id]]
    known = [node for node in sources if node.location is not None]
    return max(known, key=lambda node: node.order, default=leaf)


def find_writer(evidence: Evidence, event: GradientFactFailed) -> SourceLocation | None:
    """Return the line that last wrote what a node needs, between its op and its run."""
    node = evidence.analysis.graph.nodes[event.node_id]
    if event.fact != "node" or node.op is None:
        return None
    tensors = [saved.tensor for saved in node.saved if saved.slot == event.written_slot]
    tensors = tensors or [*node.op.inputs, *node.op.outputs]
    writes = [
        op
        for storage_id in dict.fromkeys(tensor.storage_id for tensor in tensors)
        for op in evidence.writes_between(storage_id, node.op.seq, event.seq)
        if op.location is not None
    ]
    return max(writes, key=lambda op: op.seq).location if writes else None
