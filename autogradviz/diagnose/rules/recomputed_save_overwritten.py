"""What a region's recomputation saved was written by the region itself, before backward read it.

Checkpointing keeps saved tensors by hooks, behind which PyTorch checks no version: what raises
without ``checkpoint`` gives another gradient with it, and nothing is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, short, slot, where
from autogradviz.diagnose.rule import NoError, rule
from autogradviz.diagnose.rules.silent_write import computed_gradients, covers, needed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, Region, SavedTensor, Unpack
    from autogradviz.diagnose.evidence.facts import Evidence

    Runs = list[tuple[int, dict[int | None, SavedTensor]]]  # beginning, saves by position


@rule(
    "hidden-write",
    when=NoError(),
    priority=240,
    at_most=None,
    supersedes=("checkpoint-different-values",),
)
def find_overwritten(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the first tensor of a region that was written after it was saved again.

    Needs the operators of the recomputation.
    """
    computed, nodes = computed_gradients(evidence), evidence.analysis.graph.nodes
    for region in evidence.analysis.regions:
        runs = [
            (run.started_seq, {s.position: s for s in run.saved}) for run in region.recomputations
        ]
        for saved in region.saved:
            node = nodes.get(saved.node_id) if saved.node_id is not None else None
            if node is None or not needed(node, saved, computed):
                continue
            for unpack in saved.unpacks:
                again = _saved_again(runs, saved, unpack)
                write = None if again is None else _write(evidence, again, unpack)
                if again is not None and write is not None:
                    yield _describe(region, node, saved, again, unpack, write)
                    return


def _saved_again(runs: Runs, saved: SavedTensor, unpack: Unpack) -> SavedTensor | None:
    """Return what the last recomputation before an unpack saved in the same place."""
    before = [by_position for started_seq, by_position in runs if started_seq < unpack.seq]
    return before[-1].get(saved.position) if before and not saved.is_argument else None


def _write(evidence: Evidence, again: SavedTensor, unpack: Unpack) -> Op | None:
    """Return the operator that wrote the whole of a tensor between its save and its use."""
    storage_id = again.tensor.storage_id
    for op in evidence.writes_between(storage_id, again.saved_seq, unpack.seq):
        own = again.op is not None and op.seq == again.op.seq
        if own or evidence.is_vouched_for(op, storage_id, unpack.seq):
            continue
        if any(covers(tensor, again.tensor) for tensor in op.written):
            return op
    return None


def _describe(
    region: Region, node: Node, saved: SavedTensor, again: SavedTensor, unpack: Unpack, write: Op
) -> Finding:
    victim = again.location or saved.location or node.location
    return Finding(
        slug="hidden-write",
        title=f"{slot(saved, node.name)} was written before backward, and checkpoint hid it",
        culprit=write.location,
        victim=victim,
        explanation=fit(
            [
                f"{node.name}{where(node.module)} needs a tensor that recomputation saved:",
                quoted(victim),
                f"Then {write.name} at {short(write.location)} wrote the same memory, before "
                "backward read it:",
                quoted(write.location),
                "PyTorch checks no versions of what checkpoint keeps: the gradient was computed "
                "from the new values, and nothing was raised. Without checkpoint this is the error "
                '"modified by an inplace operation".',
            ]
        ),
        fix="# make a new tensor instead of writing in place; instead of:\n"
        f"# {write.location.text if write.location is not None else ''}",
        confidence="likely",
        events=(again.saved_seq, write.seq, unpack.seq),
        nodes=(node.node_id,),
        region_id=region.region_id,
    )
