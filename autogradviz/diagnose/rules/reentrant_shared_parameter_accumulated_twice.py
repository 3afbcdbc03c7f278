"""A parameter shared by reentrant checkpoints accumulates its gradient twice in one backward.

Its hooks run once for each region, with partial gradients. ``DistributedDataParallel``, or a hook,
may raise at the second accumulation.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.reentrant_regions import REENTRANT_FIX
from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.diagnose.rule import Draft, ErrorMessage, NoError, rule
from autogradviz.diagnose.text_formatting import in_module, short_location
from autogradviz.events import BackwardStarted, HookRan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Hook, Region, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

_REDUCER: Final = "mark a variable ready only once"
_EVENTS: Final = 8  # runs of a hook that a finding refers to


@rule("reentrant-hook-repeated", mechanism="diverge", when=ErrorMessage(), group="reentrant")
def repeated_accumulation_raised(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft if a hook or DDP raised at a leaf's second accumulation."""
    in_hook = _leaf_of_repeated_hook(evidence)
    tensor_id = in_hook if in_hook is not None else _leaf_of_reducer(evidence)
    uses = [
        (region, op)
        for region in evidence.analysis.regions
        for op in region.ops
        if region.reentrant and any(tensor.tensor_id == tensor_id for tensor in op.inputs)
    ]
    if tensor_id is None or not uses:
        return
    region, use = uses[-1]
    count = len({region.region_id for region, _ in uses})
    name = evidence.analysis.leaf_name(tensor_id)
    yield Draft(
        title=f"{name} accumulated its gradient more than once in one backward: reentrant regions "
        "share it",
        culprit=region,
        victim=use,
        explanation=[
            f"{name} is used at {short_location(use.location)}:",
            use,
            f"in {'a region' if count == 1 else f'{count} regions'}{in_module(region.module)} "
            "checkpointed with use_reentrant=True:",
            region,
            "The backward of such a region is a nested backward: it adds its part to .grad and "
            "calls the hooks of the parameter, as if its part were the complete gradient.",
            "At the second part this was raised:",
            evidence.raised_at(),
        ],
        fix=REENTRANT_FIX,
        # A hook may raise for reasons of its own.
        confidence="likely" if in_hook is not None else "certain",
        evidence=(region, use),
        parameters=[tensor_id],
    )


@rule(
    "reentrant-hook-repeated",
    mechanism="diverge",
    when=NoError(),
    group="reentrant",
    after="reentrant-side-channel",
)
def repeated_hook(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each leaf hook that ran once per region instead of once per backward."""
    log = evidence.analysis.log
    parents = {e.backward_id: e.parent_backward_id for e in log.of(BackwardStarted)}
    outermost = evidence.analysis.outermost_backwards
    regions = [region for region in evidence.analysis.regions if region.reentrant]
    runs: dict[tuple[int, int], list[HookRan]] = defaultdict(list)
    for event in log.of(HookRan) if regions else ():
        if event.backward_id in outermost:
            runs[event.hook_id, outermost[event.backward_id]].append(event)
    for hook in evidence.analysis.hooks:
        if hook.kind not in {"tensor", "post_accumulate_grad"} or hook.tensor_id is None:
            continue
        for (hook_id, _), events in runs.items():
            nested = [e for e in events if parents.get(e.backward_id or 0) is not None]
            if hook_id == hook.hook_id and nested and len(events) > 1:
                yield _repeated(evidence, regions[-1], hook, events)


def _leaf_of_reducer(evidence: Evidence) -> int | None:
    """Return the leaf that DDP's reducer raised for."""
    error, nodes = evidence.analysis.error, evidence.analysis.graph.nodes
    node = nodes.get(error.node_id) if error is not None and error.node_id is not None else None
    if error is None or _REDUCER not in error.message or node is None or node.parameter is None:
        return None
    return node.parameter.tensor.tensor_id


def _leaf_of_repeated_hook(evidence: Evidence) -> int | None:
    """Return the leaf whose hook raised in its second run in one outermost backward."""
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


def _repeated(evidence: Evidence, region: Region, hook: Hook, events: list[HookRan]) -> Draft:
    name = evidence.analysis.leaf_name(hook.tensor_id or 0)
    return Draft(
        title=f"{hook.name} ran {len(events)} times in one backward, with partial gradients",
        culprit=region,
        victim=_reader(evidence, region, hook.tensor_id) or hook.location,
        explanation=[
            f"{name} has a hook:",
            hook,
            "It is used in more than one place, one of them checkpointed with use_reentrant=True:",
            region,
            "The backward of such a region is a nested backward: it accumulates into .grad and "
            f"calls hooks with its own part. The hook ran {len(events)} times, each time with the "
            "part that had arrived, and not once with the sum.",
        ],
        fix=f"{REENTRANT_FIX}\n# or do the work of the hook after backward()",
        # A hook that does not write does no harm.
        confidence="likely" if hook.kind == "post_accumulate_grad" or hook.changed else "hint",
        evidence=events[:_EVENTS],
        region_id=region.region_id,
        parameters=[] if hook.tensor_id is None else [hook.tensor_id],
    )


def _reader(evidence: Evidence, region: Region, tensor_id: int | None) -> SourceLocation | None:
    """Return the line of a region's first op that takes a leaf."""
    leaf = evidence.analysis.tensors.get(tensor_id or 0)
    return next((op.location for op in region.ops if leaf is not None
                 and leaf.storage_id in storages(op.inputs)), None)  # fmt: skip
