"""A leaf that reentrant regions share is done more than once in one backward, and somebody minds.

``DistributedDataParallel`` raises then, and so may anybody's hook after accumulation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, short, where
from autogradviz.diagnose.rules.reentrant_side_channel import REENTRANT_FIX
from autogradviz.events import HookRan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, Region
    from autogradviz.diagnose.evidence.facts import Evidence

_REDUCER: Final = "mark a variable ready only once"


def find_ready_twice(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding where backward failed in what follows a leaf's second accumulation."""
    tensor_id = _leaf(evidence)
    if tensor_id is None:
        return
    uses = [
        (region, op)
        for region in evidence.analysis.regions
        for op in region.ops
        if region.reentrant and any(tensor.tensor_id == tensor_id for tensor in op.inputs)
    ]
    if uses:
        yield _describe(evidence, tensor_id, *uses[-1], count=len({r.region_id for r, _ in uses}))


def _leaf(evidence: Evidence) -> int | None:
    """Return the leaf whose accumulation somebody would not have twice."""
    error, analysis = evidence.analysis.error, evidence.analysis
    if error is None:
        return None
    hook = _failed_again(evidence)
    if hook is not None:
        return hook
    node = analysis.graph.nodes.get(error.node_id) if error.node_id is not None else None
    if _REDUCER in error.message and node is not None and node.parameter is not None:
        return node.parameter.tensor.tensor_id
    return None


def _failed_again(evidence: Evidence) -> int | None:
    """Return the leaf whose hook raised when it ran once more in the same outermost backward."""
    runs = evidence.analysis.log.of(HookRan)
    failed = next((run for run in runs if run.failed), None)
    if failed is None or failed.backward_id is None or failed.hook_kind != "post_accumulate_grad":
        return None
    outermost = evidence.analysis.outermost_backwards
    before = [
        run
        for run in runs
        if run.hook_id == failed.hook_id
        and run is not failed
        and run.backward_id is not None
        and outermost.get(run.backward_id) == outermost[failed.backward_id]
    ]
    hooks = {hook.hook_id: hook.tensor_id for hook in evidence.analysis.hooks}
    return hooks.get(failed.hook_id) if before else None


def _describe(
    evidence: Evidence, tensor_id: int, region: Region, use: Op, *, count: int
) -> Finding:
    name = evidence.leaf_name(tensor_id)
    raised = evidence.raised_at()
    in_hook = _failed_again(evidence) is not None
    return Finding(
        slug="reentrant-hook-repeated",
        title=f"{name} was done more than once in one backward: reentrant regions share it",
        culprit=region.location,
        victim=use.location,
        explanation=fit(
            [
                f"{name} is used at {short(use.location)}:",
                quoted(use.location),
                f"in {'a region' if count == 1 else f'{count} regions'}"
                f"{where(region.module)} checkpointed with use_reentrant=True:",
                quoted(region.location),
                "The backward of such a region is a backward of its own: it adds its part to .grad "
                "and calls what waits for the gradient, as if that were all of it.",
                "The second part came, and what waits raised:",
                quoted(raised),
            ]
        ),
        fix=REENTRANT_FIX,
        confidence="likely" if in_hook else "certain",  # a hook may have reasons of its own
        events=(region.entered_seq, use.seq),
        region_id=region.region_id,
    )
