"""A second backward needs a graph that the first one freed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.attribute_kept_graph import Kept, find_kept_attribute
from autogradviz.diagnose.blame.variable_kept_graph import Carried, find_carrying_variable
from autogradviz.diagnose.evidence.backward_calls import backward_of
from autogradviz.diagnose.evidence.reentrant_regions import find_captured_graph
from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.diagnose.rule import Draft, ErrorMessage, rule
from autogradviz.diagnose.text_formatting import in_module, short_location
from autogradviz.events import NodeFinished

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op
    from autogradviz.diagnose.evidence.facts import Evidence

_FIX_KEPT: Final = "hidden = hidden.detach()  # the tensor that is kept from one step to the next"


@rule(
    "graph-freed",
    when=ErrorMessage("Trying to backward through the graph a second time"),
    group="backward raised",
    after="reentrant-captured-graph",
)
def graph_freed(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first backward, or for the tensor that kept the old graph."""
    if find_captured_graph(evidence) is not None:
        return  # reentrant-captured-graph explains it
    error, nodes = evidence.analysis.error, evidence.analysis.graph.nodes
    node = nodes.get(error.node_id) if error is not None and error.node_id is not None else None
    first = evidence.first_backward(node) if node is not None else None
    reuse, kept = _reuse(evidence, node) if node is not None else (None, None)
    second = evidence.raised_at()
    location = node.location if node is not None else None
    yield Draft(
        title="A second backward needs a graph that the first one freed",
        culprit=(kept.location if kept is not None else None)
        or (reuse.location if reuse is not None else None)
        or first
        or second,
        victim=location or second,
        explanation=[
            f"This backward ran{in_module(node.module if node else '')} "
            f"{node.name if node else 'the graph'} and freed its saved tensors:"
            if first is not None
            else "An earlier backward freed the saved tensors of the graph.",
            first,
            "This one needs them again:",
            second,
            f"They were saved at {short_location(location)}." if location is not None else "",
            "After the first backward, this operator took a tensor computed before it, and with "
            "it the old graph:"
            if reuse is not None
            else "",
            reuse,
            *(
                (_how_kept(kept), kept)
                if kept is not None and (reuse is None or kept.location != reuse.location)
                else ()
            ),
        ],
        fix=_fix(kept)
        if reuse is not None
        else "loss.backward(retain_graph=True)  # in the first backward, or add the losses\n"
        "# and call backward() once",
        confidence="certain" if first is not None else "likely",
        evidence=(reuse, error, node),
        region_id=node.region_id if node is not None else None,
    )


def _how_kept(kept: Kept | Carried) -> str:
    if not isinstance(kept, Carried):
        return f"The attribute {kept.name} kept the tensor, with its graph:"
    if kept.again:
        return f"The variable {kept.name} carried the tensor to it, with its graph:"
    return f"The tensor is in the variable {kept.name}, which was assigned once, before:"


def _fix(kept: Kept | Carried | None) -> str:
    if isinstance(kept, Carried):
        if kept.again:
            return (
                f"{kept.name} = {kept.name}.detach()  # after backward(), before it is used again"
            )
        return f"# compute {kept.name} again after each backward, or {kept.name}.detach()"
    if kept is not None and kept.location.function.endswith("__init__"):
        return f"# compute {kept.name} in forward, from the parameters, not once in __init__"
    return (kept.detached if kept is not None else "") or _FIX_KEPT


def _reuse(evidence: Evidence, freed: Node) -> tuple[Op | None, Kept | Carried | None]:
    """Return the first operator that took a tensor of a freed graph, and what had kept it."""
    runs = evidence.analysis.log.of(NodeFinished)
    run = next((event for event in runs if event.node_id == freed.node_id), None)
    if run is None:
        return None, None
    ended = run.seq
    nodes = evidence.analysis.graph.nodes
    crossing = [
        (after, before)
        for edge in evidence.analysis.graph.edges
        if (after := nodes[edge.source].op) is not None
        and (before := nodes[edge.target].op) is not None
        and before.seq < ended < after.seq
    ]
    if not crossing:
        return None, None
    after, before = min(crossing, key=lambda pair: pair[0].seq)
    if not _kept_from_step(evidence, after, before, ended):
        return None, None
    first = backward_of(evidence, run.backward_id)
    if first is None:
        return after, None
    kept = find_kept_attribute(evidence, before, first, after)
    return after, kept or find_carrying_variable(evidence, before, first, after)


def _kept_from_step(evidence: Evidence, after: Op, before: Op, ended: int) -> bool:
    """Return whether an op takes the previous step's result, as the same op did one step earlier.

    The generator loss of a GAN is no such case: it takes a tensor that the discriminator loss also
    took, and the first backward needs retain_graph.
    """
    earlier = [
        op for op in evidence.analysis.ops if op.seq < ended and op.location == after.location
    ]
    outputs = storages(before.outputs)
    return any(op.stack_id == after.stack_id for op in earlier) or (
        bool(earlier) and not any(storages(op.inputs) & outputs for op in earlier)
    )
