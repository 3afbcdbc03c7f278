"""Rules: effects of ``use_reentrant=True``."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.tensors_replaced_or_overwritten import (
    is_nested_argument,
    is_nested_result,
)
from autogradviz.diagnose.evidence.reentrant_regions import (
    REENTRANT_FIX,
    REENTRANT_NODE,
    differentiable_ops,
    find_captured_graph,
    read_without_path,
)
from autogradviz.diagnose.evidence.requires_grad_flow import End, Flow, storages
from autogradviz.diagnose.finding_text import in_module, short_location
from autogradviz.diagnose.rule import Always, Draft, ErrorMessage, NoError, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.writes_by_name_and_in_threads import writes
from autogradviz.events import BackwardStarted, HookRan, ParameterSeen, RegionCutOff

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.analysis import Hook, Op, Region, SourceLocation
    from autogradviz.diagnose.evidence.evidence import Evidence


# --- A reentrant region detaches all of its results -----------------------------------------------


@rule(
    "reentrant-detached-output",
    mechanism="cut",
    when=ErrorMessage("none of output has requires_grad=True"),
    group="backward raised",
)
def reentrant_detached_output(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the last end of a gradient path in the region recomputed last."""
    recomputed = [region for region in evidence.analysis.regions if region.recomputations]
    region = max(recomputed, key=lambda r: r.recomputations[-1].started_seq, default=None)
    if region is None:
        return
    end = _last_end(evidence, region)
    culprit = end.culprit if end is not None else region.location
    yield Draft(
        title=f"No result of {region.function} requires a gradient"
        + (f": its graph ended at {end.name}" if end is not None else ""),
        culprit=culprit,
        victim=_last_before(region, culprit) or region.location,
        explanation=[
            f"This region{in_module(region.module)} is checkpointed with use_reentrant=True, so "
            "for autograd all of its results require a gradient:",
            region,
            "In the recomputation none did:",
            culprit,
            end.reason if end is not None else "",
        ],
        fix=f"# detach outside the region, or\n{REENTRANT_FIX}",
        confidence="certain" if end is not None else "likely",
        evidence=(region, evidence.analysis.error),
    )


def _last_before(region: Region, culprit: SourceLocation | None) -> SourceLocation | None:
    """Return the last line of a region's recomputation other than the culprit."""
    others = (op.location for op in reversed(region.recomputations[-1].ops) if op.name != "detach")
    return next((place for place in others if place is not None and place != culprit), None)


def _last_end(evidence: Evidence, region: Region) -> End | None:
    """Return the last end of a gradient path in a region's recomputation."""
    flow = Flow(evidence)
    flow.reentrant.clear()  # gradients are enabled in the recomputation
    with_graph, last = set(flow.leaves), None
    for op in region.recomputations[-1].ops:
        taken = storages(op.inputs) & with_graph
        if op.sequence_nr is not None:
            with_graph |= storages(op.outputs)
        elif taken:
            last = flow.end_at(op, taken) or last
    return last


# --- the nested backward of a reentrant region frees a graph that the region captured -------------


@rule(
    "reentrant-captured-graph",
    mechanism="free",
    when=ErrorMessage("Trying to backward through the graph a second time"),
    group="backward raised",
)
def reentrant_captured_graph(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the first region that reads a tensor with a graph past its arguments."""
    found = find_captured_graph(evidence)
    if found is None:
        return
    region, maker, reader = found
    within = is_nested_argument(evidence, region, reader)
    error, nodes = evidence.analysis.error, evidence.analysis.graph.nodes
    node = nodes.get(error.node_id) if error is not None and error.node_id is not None else None
    yield Draft(
        title=f"{region.function} gets a tensor with a graph inside a tuple or an object"
        if within
        else f"{region.function} reads a tensor with a graph that is not an argument",
        culprit=region,
        victim=node if node is not None else maker,
        explanation=[
            f"This region{in_module(region.module)} is checkpointed with use_reentrant=True:",
            region,
            "It reads a tensor from inside another argument:"
            if within
            else "It reads a tensor that is not one of its arguments:",
            reader,
            "which was computed here:",
            maker,
            "The region's backward is a nested backward. Arguments are detached from their graph "
            "for it; this tensor is not, so its graph runs there and again from the loss, and the "
            "first of the two frees it.",
        ],
        fix=f"# pass the tensor itself as an argument, or\n{REENTRANT_FIX}",
        confidence="likely" if within else "certain",
        evidence=(maker, reader),
        region_id=region.region_id,
    )


# --- ``torch.autograd.grad`` or ``backward(inputs=...)`` through a reentrant checkpoint -----------


@rule(
    "reentrant-needs-backward",
    mechanism="cut",
    when=ErrorMessage(
        ("incompatible with .grad()", "Checkpointing is not compatible with .grad()")
    ),
    group="backward raised",
)
def reentrant_needs_backward(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for the region whose node failed, else for the first reentrant region."""
    nodes = [n for n in evidence.analysis.graph.nodes.values() if n.name == REENTRANT_NODE]
    failed = next((n for n in nodes if n.state == "failed"), None) or next(iter(nodes), None)
    victim = evidence.raised_at()
    yield Draft(
        title="A reentrant checkpoint cannot be differentiated by torch.autograd.grad",
        culprit=failed,
        victim=victim,
        explanation=[
            f"This region{in_module(failed.module if failed else '')} is checkpointed with "
            "use_reentrant=True:",
            failed,
            "Its backward runs a nested backward that accumulates into .grad, so it works with "
            "loss.backward() only, and without inputs=. Here the gradients of chosen inputs are "
            "computed:",
            victim,
        ],
        fix=REENTRANT_FIX,
        evidence=(evidence.analysis.error, failed),
    )


# --- reentrant regions without a node: the parameters inside get no gradient ----------------------


_SLUGS: Final = {"arguments": "reentrant-no-grad-input", "results": "reentrant-nested-results"}
_REASONS: Final = {
    "arguments": "None of its positional arguments is a tensor that requires grad. A reentrant "
    "checkpoint sees no tensors in lists, tuples and dicts, and not the parameters that the region "
    "uses.",
    "results": "Every tensor that it returns is inside a list or dict. A reentrant checkpoint "
    "runs the region without gradients and tracks only a tensor, or a tuple of tensors.",
}


@rule(
    "reentrant-no-grad-input",
    "reentrant-nested-results",
    mechanism="cut",
    when=Always(),
    group="region",
    needs={"ops"},
)
def reentrant_no_grad_input(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each region without a node that uses a trainable parameter."""
    analysis = evidence.analysis
    backwards = analysis.log.of(BackwardStarted)
    regions = {region.region_id: region for region in analysis.regions}
    trainable = storages(
        analysis.tensors[event.tensor_id]
        for event in analysis.log.of(ParameterSeen)
        if event.requires_grad
    )
    for event in analysis.log.of(RegionCutOff):
        region = regions.get(event.region_id)
        if region is None or not any(b.seq > event.seq for b in backwards):
            continue
        reader = next((op for op in region.ops if storages(op.inputs) & trainable), None)
        if reader is not None:
            yield _draft(evidence, region, reader, event)


def _draft(evidence: Evidence, region: Region, reader: Op, event: RegionCutOff) -> Draft:
    names = (evidence.name_of(t.storage_id) for t in reader.inputs if t.storage_id is not None)
    name = next((name for name in names if name), "a parameter")
    return Draft(
        slug=_SLUGS[event.cut_off],
        title=f"No parameter inside {region.module or region.function} gets a gradient",
        culprit=region,
        victim=reader,
        explanation=[
            f"The region {region.function}{in_module(region.module)} is checkpointed with "
            "use_reentrant=True:",
            region,
            _REASONS[event.cut_off],
            f"So autograd made no node for it. Inside, {reader.name} at "
            f"{short_location(reader.location)} uses {name}, which requires grad, but gets no "
            "gradient through this region; nor do earlier operators:",
            reader,
            "Nothing was raised: PyTorch only warns.",
        ],
        fix=REENTRANT_FIX,
        confidence="certain",
        evidence=(region, event),
    )


# --- reentrant shared parameter accumulated twice -------------------------------------------------
#
# A parameter shared by reentrant checkpoints accumulates its gradient twice in one backward.
#
# Its hooks run once for each region, with partial gradients. ``DistributedDataParallel``, or a
# hook, may raise at the second accumulation.


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


# --- A tensor leaves a reentrant region past its results, and loses its gradient ------------------


_IN_NO_GRAD: Final = (
    "is checkpointed with use_reentrant=True, so its forward runs without gradients, and only its "
    "results get a node:"
)


@rule("reentrant-side-channel", mechanism="cut", when=NoError(), group="reentrant", needs={"ops"})
def side_channel_to_loss(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each loss computed from a tensor that a region did not return."""
    regions = _regions_with_graph(evidence)
    if not regions:
        return
    flow, nodes_after = Flow(evidence), evidence.causal_graph.next_nodes
    with_node = differentiable_ops(regions.values())
    made: dict[int, Op] = {}  # by storage, the last op of a region that made it
    tainted: dict[int, tuple[Op, Op]] = {}  # by storage, the maker and its first user outside
    for op in flow.forward:
        if op.region_id in regions:
            made.update(dict.fromkeys(storages(op.outputs) - flow.leaves, op))
            continue
        if not made:
            continue
        taken = sorted(storages(op.inputs))
        found = next((tainted[s] for s in taken if s in tainted), None)
        if found is None and flow.disabling_mode(op) is None:
            lost = read_without_path(flow, op, made, nodes_after)
            if lost is not None and made[lost].seq in with_node:
                found = made[lost], op
        if found is not None:
            tainted.update(dict.fromkeys(storages(op.outputs), found))
    tensors = evidence.analysis.tensors
    started = evidence.analysis.log.of(BackwardStarted)
    roots = (sorted(storages(tensors[t] for t in event.root_tensor_ids)) for event in started)
    for root in chain.from_iterable(roots):
        if root in tainted:
            maker, user = tainted[root]
            yield _to_loss(evidence, regions[maker.region_id], maker, user)


def _regions_with_graph(evidence: Evidence) -> dict[int | None, Region]:
    """Return the reentrant regions whose lines made a node."""
    nodes = evidence.analysis.graph.nodes.values()
    with_graph = {node.location for node in nodes if node.name == REENTRANT_NODE}
    return {
        r.region_id: r
        for r in evidence.analysis.regions
        if r.reentrant and r.location in with_graph
    }


@rule("reentrant-side-channel", mechanism="cut", when=NoError(), group="reentrant", needs={"ops"})
def side_channel_to_region(evidence: Evidence) -> Iterator[Draft]:
    """Yield a draft for each tensor that a region took from another one past its arguments."""
    regions = [region for region in evidence.analysis.regions if region.reentrant]
    if not regions:
        return
    flow, nodes_after = Flow(evidence), evidence.causal_graph.next_nodes
    with_node = differentiable_ops(regions)
    made: dict[int, tuple[Region, Op]] = {}
    for region in regions:
        for op in _own(region, region.ops):
            for storage_id in storages(op.outputs) - flow.leaves:
                made.setdefault(storage_id, (region, op))
    for user in regions:
        for op in _own(user, [op for again in user.recomputations[:1] for op in again.ops]):
            found = [(s, made[s]) for s in storages(op.inputs) if s in made]
            others = {s: maker_op for s, (maker, maker_op) in found if maker is not user}
            taken = read_without_path(flow, op, others, nodes_after)
            if taken is not None and others[taken].seq in with_node:
                yield _to_region(made[taken][0], others[taken], op)


def _own(region: Region, ops: Iterable[Op]) -> list[Op]:
    """Return the ops of a region without those of nested regions."""
    return [op for op in ops if op.region_id == region.region_id]


def _to_loss(evidence: Evidence, region: Region, maker: Op, user: Op) -> Draft:
    returned = is_nested_result(region, maker)
    stored = _line_of_store(evidence, maker, user) or maker.location
    return Draft(
        title=f"The loss uses a tensor that {region.function} returned inside an object: its "
        "gradient is lost"
        if returned
        else f"The loss uses a tensor that {region.function} did not return: its gradient is lost",
        culprit=region,
        victim=user if returned else stored,
        explanation=[
            f"This region{in_module(region.module)} {_IN_NO_GRAD}",
            region,
            "It made this tensor, which it returned inside another object:"
            if returned
            else "It made this tensor, which it did not return:",
            maker,
            stored if not returned and stored != maker.location else None,
            f"The loss takes it at {short_location(user.location)}, as a constant:",
            user,
            "PyTorch raises nothing; the gradient through it is missing.",
        ],
        fix=f"# return it from the region, as a tensor of its own, or\n{REENTRANT_FIX}",
        confidence="likely",
        evidence=(region, maker, user),
    )


def _to_region(region: Region, maker: Op, user: Op) -> Draft:
    return Draft(
        title=f"Another region uses a tensor that {region.function} did not return: its gradient "
        "is lost",
        culprit=region,
        victim=user,
        explanation=[
            f"This region{in_module(region.module)} {_IN_NO_GRAD}",
            region,
            "It made this tensor:",
            maker,
            f"Another region takes it at {short_location(user.location)}, and not as an argument. "
            "When that region is recomputed, backward has not reached the first one yet: the "
            "tensor has no graph, and the gradient through it is missing.",
            user,
            "PyTorch raises nothing.",
        ],
        fix=f"{REENTRANT_FIX}\n# or return it from its region, and pass it to the other one",
        confidence="likely",
        evidence=(region, maker, user),
    )


def _line_of_store(evidence: Evidence, maker: Op, user: Op) -> SourceLocation | None:
    """Return the line in a region that stores a tensor under a name which the user's line reads."""
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
