"""A tensor leaves a reentrant region past its results, and loses its gradient."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.region_tensors_in_containers import is_nested_result
from autogradviz.diagnose.evidence.reentrant_regions import (
    REENTRANT_FIX,
    REENTRANT_NODE,
    differentiable_ops,
    read_without_path,
)
from autogradviz.diagnose.evidence.requires_grad_flow import Flow, storages
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.diagnose.source import source_index as source
from autogradviz.diagnose.source.name_writes import writes
from autogradviz.diagnose.text_formatting import in_module, short_location
from autogradviz.events import BackwardStarted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from autogradviz.analysis import Op, Region, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence


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
