"""Rules: saves of a recomputation that its region wrote before backward read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.evidence.failed_or_changed_unpacks import (
    computed_gradients,
    instead_of,
    is_needed,
)
from autogradviz.diagnose.finding_text import (
    in_module,
    short_location,
    slot_name,
)
from autogradviz.diagnose.rule import Draft, NoError, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op, Region, SavedTensor, Unpack
    from autogradviz.diagnose.evidence.evidence import Evidence

    Runs = list[tuple[int, dict[int | None, SavedTensor]]]  # start, saves by position

    from autogradviz.analysis import SavedTensor


# Checkpoint keeps saved tensors through hooks, which disable PyTorch's version check: a write that
# raises without ``checkpoint`` silently changes the gradient with it.


@rule(
    "hidden-write",
    mechanism="write",
    when=NoError(),
    group="saved tensor",
    after="hidden-write",
    supersedes=("checkpoint-different-values",),
)
def recomputed_save_overwritten(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first recomputed save that was overwritten before its unpack."""
    if not evidence.analysis.regions:
        return
    computed, nodes = computed_gradients(evidence), evidence.analysis.graph.nodes
    for region in evidence.analysis.regions:
        runs = [
            (run.started_seq, {s.position: s for s in run.saved}) for run in region.recomputations
        ]
        for saved in region.saved:
            node = nodes.get(saved.node_id) if saved.node_id is not None else None
            if node is None or not is_needed(node, saved, computed):
                continue
            for unpack in saved.unpacks:
                again = _saved_again(runs, saved, unpack)
                write = None if again is None else _write_before_read(evidence, again, unpack)
                if again is not None and write is not None:
                    yield _recomputed_save_written(region, node, saved, again, unpack, write)


def _saved_again(runs: Runs, saved: SavedTensor, unpack: Unpack) -> SavedTensor | None:
    """Return the save of the last recomputation before an unpack, at the same position."""
    before = [by_position for started_seq, by_position in runs if started_seq < unpack.seq]
    return before[-1].get(saved.position) if before and not saved.is_argument else None


def _write_before_read(evidence: Evidence, again: SavedTensor, unpack: Unpack) -> Op | None:
    """Return the op that overwrote a whole tensor between its save and its unpack."""
    writes = evidence.overwrites(again.tensor, again.saved_seq, unpack.seq, unless=again.op)
    return next((op for op, surely in writes if surely), None)


def _recomputed_save_written(
    region: Region, node: Node, saved: SavedTensor, again: SavedTensor, unpack: Unpack, write: Op
) -> Draft:
    victim = again.location or saved.location or node.location
    return Draft(
        title=f"{slot_name(saved, node.name)} was written before backward, and checkpoint hid it",
        culprit=write.location,
        victim=victim,
        explanation=[
            f"{node.name}{in_module(node.module)} needs a tensor that recomputation saved:",
            victim,
            f"Then {write.name} at {short_location(write.location)} wrote the same memory, "
            "before backward read it:",
            write,
            "PyTorch checks no versions of tensors kept by checkpoint: the gradient was computed "
            "from the new values, and nothing was raised. Without checkpoint this is the error "
            '"modified by an inplace operation".',
        ],
        fix=instead_of("make a new tensor instead of writing in place", write),
        confidence="likely",
        evidence=(again.saved_seq, write, unpack, node),
        region_id=region.region_id,
    )
