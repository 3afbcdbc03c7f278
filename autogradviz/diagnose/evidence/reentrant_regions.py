"""Facts about regions checkpointed with ``use_reentrant=True``.

The forward of such a region runs in ``no_grad``; autograd sees one node for the whole region. Its
backward recomputes the region and runs a nested backward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.events import NO_ID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis import Op, Region
    from autogradviz.diagnose.evidence.evidence import Evidence
    from autogradviz.diagnose.evidence.requires_grad_flow import Flow

REENTRANT_NODE: Final = "CheckpointFunctionBackward"
REENTRANT_FIX: Final = "checkpoint(function, *args, use_reentrant=False)"


class CapturedGraph(NamedTuple):
    """A tensor with a graph that a region reads although it is not an argument."""

    region: Region
    maker: Op  # computed the tensor, outside the region
    reader: Op  # reads it in the recomputation


def find_captured_graph(evidence: Evidence) -> CapturedGraph | None:
    """Return the first tensor with a graph that a reentrant region reads past its arguments."""
    nodes = evidence.analysis.graph.nodes
    makers = {
        storage_id: op
        for op in evidence.analysis.ops
        if op.node_id is not None and op.region_id is None
        for storage_id in storages(op.outputs)
    }
    arguments = {
        edge.target
        for edge in evidence.analysis.graph.edges
        if nodes[edge.source].name == REENTRANT_NODE
    }
    for region in evidence.analysis.regions:
        if not region.reentrant or not region.recomputations:
            continue
        for op in region.recomputations[0].ops:
            for storage_id in sorted(storages(op.inputs) & makers.keys()):
                if makers[storage_id].node_id not in arguments:
                    return CapturedGraph(region, makers[storage_id], op)
    return None


def differentiable_ops(regions: Iterable[Region]) -> set[int]:
    """Return the forward ops of regions that made a node in the recomputation.

    Gradients are enabled there: an op that made no node was detached on purpose, or its result
    has no gradient.
    """
    return {
        pair.forward.seq
        for region in regions
        for recomputation in region.recomputations[:1]
        for pair in recomputation.pairs
        if pair.forward is not None
        and pair.recompute is not None
        and pair.recompute.sequence_nr is not None
    }


def read_without_path(
    flow: Flow, op: Op, made: dict[int, Op], nodes_after: dict[int, tuple[int, ...]]
) -> int | None:
    """Return a storage that an op took from a region without a gradient path to it.

    Args:
        flow: knows the ops that end gradient paths on purpose.
        op: an op outside the region.
        made: the ops of regions that made storages, by storage.
        nodes_after: the nodes after each node.
    """
    floating = [tensor for tensor in op.inputs if "float" in tensor.dtype]
    positions = {t.storage_id: i for i, t in enumerate(op.inputs) if t in floating}
    taken = [s for s in positions if s is not None and s in made]
    if not taken or not op.outputs:
        return None
    if op.sequence_nr is None:
        return None if flow.end_at(op, set(taken)) is not None else taken[0]
    following = nodes_after.get(op.node_id, ()) if op.node_id is not None else ()
    if len(following) != len(op.inputs):
        return None
    return next((s for s in taken if following[positions[s]] == NO_ID), None)
