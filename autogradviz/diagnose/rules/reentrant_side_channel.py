"""What a reentrant region does beside its arguments and results: lost, or done twice, silently.

Its forward runs without gradients: what it leaves behind on the side has none. Its backward is a
backward of its own: what hangs on a shared leaf is called once a region.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.nested_arguments import is_nested_result
from autogradviz.diagnose.evidence.gradient_flow import Flow, storages
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, short, where
from autogradviz.diagnose.source import index as source
from autogradviz.diagnose.source.writes import writes
from autogradviz.events import NO_ID, BackwardStarted, HookRan, NodeSeen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.analysis import Hook, Op, Region, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

REENTRANT_NODE: Final = "CheckpointFunctionBackward"
REENTRANT_FIX: Final = "checkpoint(function, *args, use_reentrant=False)"


def find_lost_beside(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding where the loss uses what a region left behind on the side."""
    flow = Flow(evidence)
    nodes = evidence.analysis.graph.nodes
    following = {e.node_id: e.next_node_ids for e in evidence.analysis.log.of(NodeSeen)}
    with_graph = {node.location for node in nodes.values() if node.name == REENTRANT_NODE}
    regions = {r.region_id: r for r in evidence.analysis.regions
               if r.reentrant and r.location in with_graph}  # fmt: skip
    with_node = differentiable(regions.values())
    made: dict[int, Op] = {}  # by storage, what a region made last
    tainted: dict[int, tuple[Op, Op]] = {}  # maker and first user outside
    for op in flow.forward:
        taken = storages(op.inputs)
        if op.region_id in regions:
            made.update(dict.fromkeys(storages(op.outputs) - flow.leaves, op))
            continue
        if not made:
            continue
        found = next((tainted[s] for s in sorted(taken) if s in tainted), None)
        if found is None and flow.switched_off(op) is None:
            on_the_side = read_without_node(flow, op, made, following)
            if on_the_side is not None and made[on_the_side].seq in with_node:
                found = made[on_the_side], op
        if found is not None:
            tainted.update(dict.fromkeys(storages(op.outputs), found))
    tensors = evidence.analysis.tensors
    for event in evidence.analysis.log.of(BackwardStarted):
        for root in sorted(storages(tensors[t] for t in event.root_tensor_ids)):
            if root in tainted:
                maker, user = tainted[root]
                region = regions[maker.region_id or 0]
                line = _where_kept(evidence, maker, user) or maker.location
                returned = is_nested_result(region, maker)
                yield _left_behind(region, maker, user, line, returned=returned)
                return


def differentiable(regions: Iterable[Region]) -> set[int]:
    """Return the operators of regions' forwards that made a node when they ran again.

    There gradients are on: what makes no node then was cut off on purpose, or has no gradient.
    """
    return {
        pair.forward.seq
        for region in regions
        for again in region.recomputations[:1]
        for pair in again.pairs
        if pair.forward is not None
        and pair.recompute is not None
        and pair.recompute.sequence_nr is not None
    }


def read_without_node(
    flow: Flow, op: Op, made: dict[int, Op], following: dict[int, tuple[int, ...]]
) -> int | None:
    """Return the storage that an operator took out of a region and got no gradient's way to.

    Args:
        flow: knows what ended ways on purpose.
        op: an operator outside of the region.
        made: the storages that regions made.
        following: by node, what follows each of its inputs.
    """
    floating = [tensor for tensor in op.inputs if "float" in tensor.dtype]
    places = {t.storage_id: i for i, t in enumerate(op.inputs) if t in floating}
    taken = [s for s in places if s is not None and s in made]
    if not taken or not op.outputs:
        return None
    if op.sequence_nr is None:
        return None if flow.end_at(op, set(taken)) is not None else taken[0]
    ways = following.get(op.node_id, ()) if op.node_id is not None else ()
    if len(ways) != len(op.inputs):
        return None
    return next((s for s in taken if ways[places[s]] == NO_ID), None)


def _where_kept(evidence: Evidence, maker: Op, user: Op) -> SourceLocation | None:
    """Return the line in a region that keeps a tensor under a name which the user's line reads."""
    if maker.location is None or user.location is None:
        return None
    filename = maker.location.filename
    ran = {place.function for place in evidence.analysis.stack(maker.stack_id)}
    lines = [
        write.lineno
        for name in re.findall(r"[A-Za-z_]\w*", user.location.text)
        for write in writes(filename, name)
        if write.function in ran and write.function and write.lineno >= maker.location.lineno
    ]
    if not lines:
        return None
    return source.location(filename, min(lines), maker.location.function)


def _left_behind(
    region: Region, maker: Op, user: Op, kept: SourceLocation | None, *, returned: bool
) -> Finding:
    return Finding(
        slug="reentrant-side-channel",
        title=f"The loss uses what {region.function} returned inside of an object: no gradient"
        if returned
        else f"The loss uses what {region.function} left on the side: its gradient is lost",
        culprit=region.location,
        victim=user.location if returned else kept,
        explanation=fit(
            [
                f"This region{where(region.module)} is checkpointed with use_reentrant=True, so "
                "its forward runs without gradients, and only what it returns gets a node:",
                quoted(region.location),
                "It made this, which it returned inside of another object:"
                if returned
                else "It made this, which it did not return:",
                quoted(maker.location),
                quoted(kept) if not returned and kept != maker.location else "",
                f"The loss takes it at {short(user.location)}, as a constant:",
                quoted(user.location),
                "PyTorch raises nothing; the gradient through it is missing.",
            ]
        ),
        fix=f"# return it from the region, as a tensor of its own, or\n{REENTRANT_FIX}",
        confidence="likely",
        events=(region.entered_seq, maker.seq, user.seq),
        region_id=region.region_id,
    )


def find_repeated_hooks(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding where a leaf's hook ran once a region in place of once a backward."""
    log = evidence.analysis.log
    parents = {e.backward_id: e.parent_backward_id for e in log.of(BackwardStarted)}
    outermost = evidence.analysis.outermost_backwards
    runs: dict[tuple[int, int], list[HookRan]] = defaultdict(list)
    for event in log.of(HookRan):
        if event.backward_id in outermost:
            runs[event.hook_id, outermost[event.backward_id]].append(event)
    for hook in evidence.analysis.hooks:
        if hook.kind not in {"tensor", "post_accumulate_grad"} or hook.tensor_id is None:
            continue
        for (hook_id, _), events in runs.items():
            nested = [e for e in events if parents.get(e.backward_id or 0) is not None]
            if hook_id == hook.hook_id and nested and len(events) > 1:
                yield _ran_again(evidence, hook, events)
                return


def _reader(evidence: Evidence, region: Region, tensor_id: int | None) -> SourceLocation | None:
    """Return the line of a region's first operator that takes a leaf."""
    leaf = evidence.analysis.tensors.get(tensor_id or 0)
    return next((op.location for op in region.ops if leaf is not None
                 and leaf.storage_id in storages(op.inputs)), None)  # fmt: skip


def _ran_again(evidence: Evidence, hook: Hook, events: list[HookRan]) -> Finding:
    regions = [region for region in evidence.analysis.regions if region.reentrant]
    region = regions[-1]
    name = evidence.leaf_name(hook.tensor_id or 0)
    return Finding(
        slug="reentrant-hook-repeated",
        title=f"{hook.name} ran {len(events)} times in one backward, on parts of a gradient",
        culprit=region.location,
        victim=_reader(evidence, region, hook.tensor_id) or hook.location,
        explanation=fit(
            [
                f"{name} has a hook:",
                quoted(hook.location),
                "It is used in more than one place, one of them checkpointed with "
                "use_reentrant=True:",
                quoted(region.location),
                "The backward of such a region is a backward of its own: it fills .grad and calls "
                f"hooks with its own part. The hook ran {len(events)} times, each time with the "
                "part that had arrived, and not once with the sum.",
            ]
        ),
        fix=f"{REENTRANT_FIX}\n# or do the hook's work after backward()",
        # A hook that only looks does no harm; one that writes does.
        confidence="likely" if hook.kind == "post_accumulate_grad" or hook.changed else "hint",
        events=tuple(event.seq for event in events[:8]),
        region_id=region.region_id,
    )
