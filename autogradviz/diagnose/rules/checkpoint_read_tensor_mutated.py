"""A tensor that a checkpointed region reads was written between forward and recomputation.

PyTorch checks the shapes of recomputed tensors, and the versions of positional tensor arguments.
It does not check parameters, buffers and captured tensors; their versions are in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.diagnose.evidence.recompute_value_diff import values_agree
from autogradviz.diagnose.rule import Always, Draft, rule
from autogradviz.diagnose.text_formatting import in_module, short_location

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, Recomputation, Region
    from autogradviz.diagnose.evidence.facts import Evidence


@rule(
    "checkpoint-captured-tensor-mutated",
    mechanism="write",
    when=Always(),
    group="region",
    after="shared-gradient-written",
    needs={"ops"},
)
def checkpoint_captured_tensor_mutated(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each recomputation that read a tensor written after the forward."""
    for region in evidence.analysis.regions:
        for recomputation in region.recomputations:
            found = evidence.written_after(region, recomputation.started_seq)
            if found is not None and not values_agree(region, recomputation):
                yield _draft(evidence, region, recomputation, *found)


def _draft(
    evidence: Evidence, region: Region, recomputation: Recomputation, write: Op, read: Op
) -> Draft:
    name = evidence.shared_name(write, read)
    return Draft(
        title=f"{name or 'A tensor'} changed before the region that reads it was recomputed",
        culprit=write,
        victim=read.location or region.location,
        explanation=[
            f"The checkpointed region {region.function}{in_module(region.module)} reads "
            f"{name or 'a tensor that it did not make'} at {short_location(read.location)}:",
            region,
            f"After its forward, {write.name} wrote it:",
            write,
            "Then the region was recomputed from the new values: its gradients do not belong to "
            "the loss that was computed. Checkpoint compares the versions of positional tensor "
            "arguments only, so nothing was raised.",
        ],
        fix="# call step() only after every backward() through the region"
        if evidence.in_optimizer(write)
        else "# move this write after backward(), or write to a clone",
        evidence=(read, write, recomputation),
    )
