"""A tensor that a selective policy kept was written before the recomputation took it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import in_module, paragraphs, quote_source, short_location
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import ErrorMessage, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, Region
    from autogradviz.diagnose.evidence.facts import Evidence

_MESSAGE: Final = "cached during selective activation checkpoint has been mutated"


PAGE: Final = Page(
    slug="selective-cache-mutated",
    title="What a checkpoint policy kept was written",
    means="""The policy kept an operator's result, so as not to run it again. It was written
    before the region was recomputed, and recomputation would have gone on from the new values:
    PyTorch stopped.""",
    happens="""The region stores a tensor in an attribute or a list, and it is written there.""",
    fix="""Write to a clone; or let the policy recompute that operator.""",
    example="""
import torch
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
import autogradviz


def policy(ctx, op, *args, **kwargs):
    kept = op == torch.ops.aten.addmm.default
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def contexts():
    return create_selective_checkpoint_contexts(policy)


net = torch.nn.Linear(3, 3)

kept = []


def block(x):
    y = net(x)
    if not kept:
        kept.append(y)
    return y.exp().sin()


with autogradviz.record(net) as trace:
    y = checkpoint(block, torch.rand(2, 3), use_reentrant=False, context_fn=contexts)
    with torch.no_grad():
        kept[0].mul_(2)  # <-- named
    y.sum().backward()
""",
)


@rule(
    "selective-cache-mutated", when=ErrorMessage(_MESSAGE), priority=90, pages=(PAGE,), at_most=None
)
def find_mutated_cache(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for the write to what a policy had kept."""
    error = evidence.analysis.error
    if error is None or _MESSAGE not in error.message:
        return
    for region in evidence.analysis.regions:
        for op in region.ops:
            if op.policy.endswith("save"):
                write = _written(evidence, op, error.seq)
                if write is not None:
                    yield _describe(region, op, write, error.seq)
                    return
    kept = [
        (r, op) for r in evidence.analysis.regions for op in r.ops if op.policy.endswith("save")
    ]
    if kept:
        yield _describe(*kept[-1], None, error.seq)


def _written(evidence: Evidence, op: Op, until: int) -> Op | None:
    storages = [t.storage_id for t in op.outputs if t.storage_id is not None]
    writes = (w for storage_id in storages for w in evidence.writers.get(storage_id, ()))
    return next((write for write in writes if op.seq < write.seq < until), None)


def _describe(region: Region, op: Op, write: Op | None, error_seq: int) -> Finding:
    culprit = write.location if write is not None else None
    by = write.name if write is not None else "something that was not recorded"
    return Finding(
        slug="selective-cache-mutated",
        title=f"What the policy kept of {op.name} was written in place",
        culprit=culprit,
        victim=op.location,
        explanation=paragraphs(
            [
                f"The policy of the region {region.function}{in_module(region.module)} "
                f"({short_location(region.location)}) keeps what {op.name} gave:",
                quote_source(op.location),
                f"Then {by} wrote it:",
                quote_source(culprit),
                "Recomputation would have gone on from the written tensor, so PyTorch stopped.",
            ]
        ),
        fix="# make a new tensor instead of writing in place, or let the policy recompute it;\n"
        f"# instead of: {culprit.text if culprit is not None else 'the write in place'}",
        confidence="certain" if culprit is not None else "likely",
        events=(op.seq, *([write.seq] if write is not None else []), error_seq),
        region_id=region.region_id,
    )
