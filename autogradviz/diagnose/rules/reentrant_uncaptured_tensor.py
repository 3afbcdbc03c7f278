"""What one reentrant region made, and another read past its arguments: its gradient is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.evidence.gradient_flow import Flow, storages
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, short, where
from autogradviz.diagnose.rules.reentrant_side_channel import (
    REENTRANT_FIX,
    differentiable,
    read_without_node,
)
from autogradviz.events import NodeSeen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.analysis import Op, Region
    from autogradviz.diagnose.evidence.facts import Evidence


def find_carried(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the first tensor that a region took from another without a node."""
    flow = Flow(evidence)
    following = {e.node_id: e.next_node_ids for e in evidence.analysis.log.of(NodeSeen)}
    regions = [region for region in evidence.analysis.regions if region.reentrant]
    with_node = differentiable(regions)
    made: dict[int, tuple[Region, Op]] = {}
    for region in regions:
        for op in _own(region, region.ops):
            for storage_id in storages(op.outputs) - flow.leaves:
                made.setdefault(storage_id, (region, op))
    for user in regions:
        others = {s: op for s, (maker, op) in made.items() if maker is not user}
        for op in _own(user, [op for again in user.recomputations[:1] for op in again.ops]):
            taken = read_without_node(flow, op, others, following)
            if taken is not None and others[taken].seq in with_node:
                yield _describe(made[taken][0], others[taken], op)
                return


def _own(region: Region, ops: Iterable[Op]) -> list[Op]:
    """Return the operators of a region, without those of regions inside of it."""
    return [op for op in ops if op.region_id == region.region_id]


def _describe(region: Region, maker: Op, user: Op) -> Finding:
    return Finding(
        slug="reentrant-side-channel",
        title=f"Another region uses what {region.function} left on the side: its gradient is lost",
        culprit=region.location,
        victim=user.location,
        explanation=fit(
            [
                f"This region{where(region.module)} is checkpointed with use_reentrant=True, so "
                "its forward runs without gradients, and only what it returns gets a node:",
                quoted(region.location),
                "It made this:",
                quoted(maker.location),
                f"Another region takes it at {short(user.location)}, and not as an argument. When "
                "that region is recomputed, backward has not come to the first one yet: it finds "
                "a tensor without history, and the gradient through it is missing.",
                quoted(user.location),
                "PyTorch raises nothing.",
            ]
        ),
        fix=f"{REENTRANT_FIX}\n# or return it from its region, and pass it to the other one",
        confidence="likely",
        events=(region.entered_seq, maker.seq, user.seq),
        region_id=region.region_id,
    )
