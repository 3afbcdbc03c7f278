"""Pitfalls of ``use_reentrant=True``: a region that is one node, and a backward in a backward.

Its forward runs without gradients, so only its arguments and results have any: what it reads or
leaves behind on the side has none, or has them twice.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.flow import End, Flow, storages
from autogradviz.diagnose.wording import fit, quoted, short, where
from autogradviz.events import NO_ID, BackwardStarted, HookRan, NodeSeen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence import Evidence
    from autogradviz.model import Hook, Op, Region

_NODE: Final = "CheckpointFunctionBackward"
_GRAD: Final = ("incompatible with .grad()", "Checkpointing is not compatible with .grad()")
_NO_OUTPUT: Final = "none of output has requires_grad=True"
_FIX: Final = "checkpoint(function, *args, use_reentrant=False)"


def find_reentrant_pitfalls(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for each pitfall that a reentrant checkpoint was caught in."""
    error = evidence.model.error
    if error is not None and any(words in error.message for words in _GRAD):
        yield _gradients_asked_for(evidence)
    elif error is not None and _NO_OUTPUT in error.message:
        yield from _detached_output(evidence)
    elif error is None and any(region.reentrant for region in evidence.model.regions):
        yield from _side_channel(evidence)
        yield from _repeated_hooks(evidence)


def _gradients_asked_for(evidence: Evidence) -> Finding:
    model = evidence.model
    nodes = [node for node in model.graph.nodes.values() if node.name == _NODE]
    failed = next((n for n in nodes if n.state == "failed"), None) or next(iter(nodes), None)
    culprit = failed.location if failed is not None else None
    victim = evidence.raised_at()
    return Finding(
        slug="reentrant-needs-backward",
        title="A reentrant checkpoint cannot be differentiated by torch.autograd.grad",
        culprit=culprit,
        victim=victim,
        explanation=fit(
            [
                f"This region{where(failed.module if failed else '')} is checkpointed with "
                "use_reentrant=True:",
                quoted(culprit),
                "Its backward runs a backward of its own that fills .grad, so it works with "
                "loss.backward() only, and without inputs=. Here gradients of chosen inputs were "
                "asked for:",
                quoted(victim),
            ]
        ),
        fix=_FIX,
        confidence="certain" if culprit is not None else "likely",
        events=(model.error.seq,) if model.error is not None else (),
        nodes=(failed.node_id,) if failed is not None else (),
    )


def _detached_output(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding where all that a region gives was detached inside it."""
    rerun = [region for region in evidence.model.regions if region.recomputations]
    region = max(rerun, key=lambda r: r.recomputations[-1].started_seq, default=None)
    if region is None:
        return
    end = _last_end(evidence, region)
    error = evidence.model.error
    culprit = end.culprit if end is not None else region.location
    yield Finding(
        slug="reentrant-detached-output",
        title=f"{region.function} gives nothing that has a gradient"
        + (f": it ended at {end.name}" if end is not None else ""),
        culprit=culprit,
        victim=region.location,
        explanation=fit(
            [
                f"This region{where(region.module)} is checkpointed with use_reentrant=True, so "
                "for autograd everything that it returns requires a gradient:",
                quoted(region.location),
                "When backward ran it again nothing did:",
                quoted(culprit),
                end.reason if end is not None else "",
            ]
        ),
        fix=f"# detach outside of the region, or\n{_FIX}",
        confidence="certain" if end is not None else "likely",
        events=(region.entered_seq, *((error.seq,) if error is not None else ())),
        region_id=region.region_id,
    )


def _last_end(evidence: Evidence, region: Region) -> End | None:
    """Return where the way of gradients ended last in a region's recomputation."""
    flow = Flow(evidence)
    flow.reentrant.clear()  # in its second run gradients are on
    graded, last = set(flow.leaves), None
    for op in region.recomputations[-1].ops:
        taken = storages(op.inputs) & graded
        if op.sequence_nr is not None:
            graded |= storages(op.outputs)
        elif taken:
            last = flow.end_at(op, taken) or last
    return last


def captured_graph(evidence: Evidence) -> Finding | None:
    """Return a finding where a region's own backward ran through a graph that it captured.

    To be asked where a backward needs a graph that was freed before.
    """
    nodes = evidence.model.graph.nodes
    makers = {s: op for op in evidence.model.ops if op.node_id is not None and op.region_id is None
              for s in storages(op.outputs)}  # fmt: skip
    arguments = {edge.target for edge in evidence.model.graph.edges
                 if nodes[edge.source].name == _NODE}  # fmt: skip
    for region in evidence.model.regions:
        if not region.reentrant or not region.recomputations:
            continue
        for op in region.recomputations[0].ops:
            for storage_id in sorted(storages(op.inputs) & makers.keys()):
                maker = makers[storage_id]
                if maker.node_id not in arguments:
                    return _captured(evidence, region, maker, op)
    return None


def _captured(evidence: Evidence, region: Region, maker: Op, reader: Op) -> Finding:
    return Finding(
        slug="reentrant-captured-graph",
        title=f"{region.function} reads a tensor with a graph, which is no argument of it",
        culprit=reader.location,
        victim=evidence.raised_at(),
        explanation=fit(
            [
                f"This region{where(region.module)} is checkpointed with use_reentrant=True:",
                quoted(region.location),
                "Inside, it reads a tensor that it was not given as an argument:",
                quoted(reader.location),
                "which was computed here:",
                quoted(maker.location),
                "The region's backward is a backward of its own. Arguments are cut off from their "
                "graph for it; this tensor is not, so its graph is run there and once more from "
                "the loss, and the first of the two frees it.",
            ]
        ),
        fix=f"# pass it as an argument, or\n{_FIX}",
        confidence="certain",
        events=(maker.seq, reader.seq),
        region_id=region.region_id,
    )


def _side_channel(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding where the loss uses what a region left behind on the side."""
    flow = Flow(evidence)
    nodes = evidence.model.graph.nodes
    following = {e.node_id: e.next_node_ids for e in evidence.model.log.of(NodeSeen)}
    with_graph = {node.location for node in nodes.values() if node.name == _NODE}
    regions = {r.region_id: r for r in evidence.model.regions
               if r.reentrant and r.location in with_graph}  # fmt: skip
    made: dict[int, Op] = {}  # by storage, what a region made last
    tainted: dict[int, tuple[Op, Op]] = {}  # maker and first user outside
    for op in flow.forward:
        taken = storages(op.inputs)
        if op.region_id in regions:
            made.update(dict.fromkeys(storages(op.outputs), op))
            continue
        found = next((tainted[s] for s in sorted(taken) if s in tainted), None)
        if found is None and flow.switched_off(op) is None:
            on_the_side = _read_without_node(flow, op, made, following)
            found = (made[on_the_side], op) if on_the_side is not None else None
        if found is not None:
            tainted.update(dict.fromkeys(storages(op.outputs), found))
    tensors = evidence.model.tensors
    for event in evidence.model.log.of(BackwardStarted):
        for root in sorted(storages(tensors[t] for t in event.root_tensor_ids)):
            if root in tainted:
                maker, user = tainted[root]
                yield _left_behind(regions[maker.region_id or 0], maker, user)
                return


def _read_without_node(
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


def _left_behind(region: Region, maker: Op, user: Op) -> Finding:
    return Finding(
        slug="reentrant-side-channel",
        title=f"The loss uses what {region.function} left on the side: its gradient is lost",
        culprit=maker.location,
        victim=user.location,
        explanation=fit(
            [
                f"This region{where(region.module)} is checkpointed with use_reentrant=True, so "
                "its forward runs without gradients, and only what it returns gets a node:",
                quoted(region.location),
                "It made this, which it did not return:",
                quoted(maker.location),
                f"The loss takes it at {short(user.location)}, as a constant:",
                quoted(user.location),
                "PyTorch raises nothing; the gradient through it is missing.",
            ]
        ),
        fix=f"# return it from the region, or\n{_FIX}",
        confidence="likely",
        events=(region.entered_seq, maker.seq, user.seq),
        region_id=region.region_id,
    )


def _repeated_hooks(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding where a leaf's hook ran once a region in place of once a backward."""
    log = evidence.model.log
    parents = {e.backward_id: e.parent_backward_id for e in log.of(BackwardStarted)}
    runs: dict[tuple[int, int], list[HookRan]] = defaultdict(list)
    for event in log.of(HookRan):
        if event.backward_id is not None:
            runs[event.hook_id, _outermost(parents, event.backward_id)].append(event)
    for hook in evidence.model.hooks:
        if hook.kind not in {"tensor", "post_accumulate_grad"} or hook.tensor_id is None:
            continue
        for (hook_id, _), events in runs.items():
            nested = [e for e in events if parents.get(e.backward_id or 0) is not None]
            if hook_id == hook.hook_id and nested and len(events) > 1:
                yield _ran_again(evidence, hook, events)
                return


def _outermost(parents: dict[int, int | None], backward_id: int) -> int:
    while (parent := parents.get(backward_id)) is not None:
        backward_id = parent
    return backward_id


def _ran_again(evidence: Evidence, hook: Hook, events: list[HookRan]) -> Finding:
    regions = [region for region in evidence.model.regions if region.reentrant]
    region = regions[-1]
    name = evidence.model.parameters.get(hook.tensor_id or 0, ("a leaf",))[0]
    return Finding(
        slug="reentrant-hook-repeated",
        title=f"{hook.name} ran {len(events)} times in one backward, on parts of a gradient",
        culprit=region.location,
        victim=hook.location,
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
        fix=f"{_FIX}\n# or do the hook's work after backward()",
        # A hook that only looks does no harm; one that writes does.
        confidence="likely" if hook.kind == "post_accumulate_grad" or hook.changed else "hint",
        events=tuple(event.seq for event in events[:8]),
        region_id=region.region_id,
    )
