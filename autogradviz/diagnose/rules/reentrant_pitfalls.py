"""Pitfalls of ``use_reentrant=True``: a region that is one node, and a backward in a backward.

Its forward runs without gradients, so only its arguments and results have any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.blame.nested_arguments import is_nested_argument
from autogradviz.diagnose.evidence.gradient_flow import End, Flow, storages
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, quoted, where
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import Always, rule
from autogradviz.diagnose.rules.reentrant_double_accumulate import find_ready_twice
from autogradviz.diagnose.rules.reentrant_side_channel import (
    REENTRANT_FIX,
    REENTRANT_NODE,
    find_lost_beside,
    find_repeated_hooks,
)
from autogradviz.diagnose.rules.reentrant_uncaptured_tensor import find_carried

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op, Region, SourceLocation
    from autogradviz.diagnose.evidence.facts import Evidence

_GRAD: Final = ("incompatible with .grad()", "Checkpointing is not compatible with .grad()")
_NO_OUTPUT: Final = "none of output has requires_grad=True"


REENTRANT_NEEDS_BACKWARD_PAGE: Final = Page(
    slug="reentrant-needs-backward",
    title="A reentrant checkpoint under torch.autograd.grad",
    means="""The backward of a reentrant region runs a backward of its own that fills .grad. It
    cannot be asked for the gradients of chosen inputs.""",
    happens="""A gradient penalty, meta-learning or backward(inputs=...) goes through a region
    with use_reentrant=True.""",
    fix="""Use use_reentrant=False, which has none of these limits.""",
    example="""
import torch
from torch.utils.checkpoint import checkpoint
import autogradviz

net = torch.nn.Linear(3, 3)

x = torch.rand(2, 3, requires_grad=True)
with autogradviz.record(net) as trace:
    y = checkpoint(net, x, use_reentrant=True)  # <-- named
    torch.autograd.grad(y.sum(), x)
""",
)
REENTRANT_DETACHED_OUTPUT_PAGE: Final = Page(
    slug="reentrant-detached-output",
    title="A reentrant region gives nothing that has a gradient",
    means="""For autograd everything that a reentrant region returns requires a gradient. When
    backward ran it again nothing did, so there was nothing to run.""",
    happens="""detach() or no_grad inside of the region.""",
    fix="""Detach outside the region, or use use_reentrant=False, without these limits.""",
    example="""
import torch
from torch.utils.checkpoint import checkpoint
import autogradviz

net = torch.nn.Linear(3, 3)

def features(x):
    return net(x).detach()  # <-- named


x = torch.rand(2, 3, requires_grad=True)
with autogradviz.record(net) as trace:
    checkpoint(features, x, use_reentrant=True).sum().backward()
""",
)
REENTRANT_CAPTURED_GRAPH_PAGE: Final = Page(
    slug="reentrant-captured-graph",
    title="A reentrant region reads a tensor with a graph that is no argument",
    means="""The arguments of a reentrant region are cut off from their graph while its own
    backward runs. A captured tensor is not: its graph is run there, and once more from the loss,
    and the first of the two frees it.""",
    happens="""A lambda or a method reads a tensor that was computed before, from a closure, a
    global or an attribute.""",
    fix="""Pass it as an argument. Use use_reentrant=False, which has none of these limits.""",
    example="""
import torch
from torch.utils.checkpoint import checkpoint
import autogradviz

net = torch.nn.Linear(3, 3)

x = torch.rand(2, 3, requires_grad=True)
with autogradviz.record(net) as trace:
    gate = net(x).exp()

    def gated(x):
        return (x * gate).sin()

    y = checkpoint(gated, x, use_reentrant=True)  # <-- named
    (y.sum() + gate.sum()).backward()
""",
)
REENTRANT_SIDE_CHANNEL_PAGE: Final = Page(
    slug="reentrant-side-channel",
    title="The loss uses what a reentrant region left on the side",
    means="""The forward of a reentrant region runs without gradients, and only what it returns
    gets a node. A tensor that it leaves in a list or an attribute is a constant for the loss: its
    gradient is missing, and nothing is raised.""",
    happens="""An auxiliary loss, attention weights or statistics are kept in an attribute.""",
    fix="""Return it from the region. Use use_reentrant=False, which has none of these limits.""",
    example="""
import torch
from torch.utils.checkpoint import checkpoint
import autogradviz

net = torch.nn.Linear(3, 3)

kept = []


def block(x):
    y = net(x)
    kept.append(y.square().mean())
    return y.exp()


x = torch.rand(2, 3, requires_grad=True)
with autogradviz.record(net) as trace:
    y = checkpoint(block, x, use_reentrant=True)  # <-- named
    (y.sum() + kept[0]).backward()
""",
)
REENTRANT_HOOK_REPEATED_PAGE: Final = Page(
    slug="reentrant-hook-repeated",
    title="A hook ran once a region, on parts of the gradient",
    means="""The backward of a reentrant region is a backward of its own: it fills .grad and calls
    hooks with its part. A parameter that several regions share has its hook called with each
    part, and not once with the sum.""",
    happens="""Shared weights, and hooks that clip, scale, communicate or step.""",
    fix="""Use use_reentrant=False, which has none of these limits; or do the hook's work after
    backward().""",
    example="""
import torch
from torch.utils.checkpoint import checkpoint
import autogradviz

net = torch.nn.Linear(3, 3)

def clip(weight):
    weight.grad.clamp_(-1, 1)


net.weight.register_post_accumulate_grad_hook(clip)
x = torch.rand(2, 3, requires_grad=True)
with autogradviz.record(net) as trace:
    y = checkpoint(net, x, use_reentrant=True)
    y = checkpoint(net, y, use_reentrant=True)  # <-- named
    y.sum().backward()
""",
)


@rule(
    "reentrant-needs-backward",
    "reentrant-detached-output",
    "reentrant-captured-graph",
    "reentrant-side-channel",
    "reentrant-hook-repeated",
    when=Always(),
    priority=80,
    pages=(
        REENTRANT_NEEDS_BACKWARD_PAGE,
        REENTRANT_DETACHED_OUTPUT_PAGE,
        REENTRANT_CAPTURED_GRAPH_PAGE,
        REENTRANT_SIDE_CHANNEL_PAGE,
        REENTRANT_HOOK_REPEATED_PAGE,
    ),
    at_most=None,
)
def find_reentrant_pitfalls(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for each pitfall that a reentrant checkpoint was caught in."""
    error = evidence.analysis.error
    if error is not None and any(words in error.message for words in _GRAD):
        yield _gradients_asked_for(evidence)
    elif error is not None and _NO_OUTPUT in error.message:
        yield from _detached_output(evidence)
    elif error is not None:
        yield from find_ready_twice(evidence)
    elif any(region.reentrant for region in evidence.analysis.regions):
        yield from find_lost_beside(evidence)
        yield from find_carried(evidence)
        yield from find_repeated_hooks(evidence)


def _gradients_asked_for(evidence: Evidence) -> Finding:
    analysis = evidence.analysis
    nodes = [node for node in analysis.graph.nodes.values() if node.name == REENTRANT_NODE]
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
        fix=REENTRANT_FIX,
        confidence="certain" if culprit is not None else "likely",
        events=(analysis.error.seq,) if analysis.error is not None else (),
        nodes=(failed.node_id,) if failed is not None else (),
    )


def _detached_output(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding where all that a region gives was detached inside it."""
    rerun = [region for region in evidence.analysis.regions if region.recomputations]
    region = max(rerun, key=lambda r: r.recomputations[-1].started_seq, default=None)
    if region is None:
        return
    end = _last_end(evidence, region)
    error = evidence.analysis.error
    culprit = end.culprit if end is not None else region.location
    yield Finding(
        slug="reentrant-detached-output",
        title=f"{region.function} gives nothing that has a gradient"
        + (f": it ended at {end.name}" if end is not None else ""),
        culprit=culprit,
        victim=_last_before(region, culprit) or region.location,
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
        fix=f"# detach outside of the region, or\n{REENTRANT_FIX}",
        confidence="certain" if end is not None else "likely",
        events=(region.entered_seq, *((error.seq,) if error is not None else ())),
        region_id=region.region_id,
    )


def _last_before(region: Region, culprit: SourceLocation | None) -> SourceLocation | None:
    """Return the last operator of a region whose result learns nothing, besides what cut it off."""
    others = (op.location for op in reversed(region.recomputations[-1].ops) if op.name != "detach")
    return next((place for place in others if place is not None and place != culprit), None)


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
    nodes = evidence.analysis.graph.nodes
    ops = evidence.analysis.ops
    makers = {s: op for op in ops if op.node_id is not None and op.region_id is None
              for s in storages(op.outputs)}  # fmt: skip
    arguments = {edge.target for edge in evidence.analysis.graph.edges
                 if nodes[edge.source].name == REENTRANT_NODE}  # fmt: skip
    for region in evidence.analysis.regions:
        if not region.reentrant or not region.recomputations:
            continue
        for op in region.recomputations[0].ops:
            for storage_id in sorted(storages(op.inputs) & makers.keys()):
                maker = makers[storage_id]
                if maker.node_id not in arguments:
                    return _captured(evidence, region, maker, op)
    return None


def _captured(evidence: Evidence, region: Region, maker: Op, reader: Op) -> Finding:
    within = is_nested_argument(evidence, region, reader)
    error, nodes = evidence.analysis.error, evidence.analysis.graph.nodes
    node = nodes.get(error.node_id) if error is not None and error.node_id is not None else None
    return Finding(
        slug="reentrant-captured-graph",
        title=f"{region.function} is given a tensor with a graph inside of a tuple or an object"
        if within
        else f"{region.function} reads a tensor with a graph, which is no argument of it",
        culprit=region.location,
        victim=node.location if node is not None else maker.location,
        explanation=fit(
            [
                f"This region{where(region.module)} is checkpointed with use_reentrant=True:",
                quoted(region.location),
                "Inside, it reads a tensor that it was given within another argument:"
                if within
                else "Inside, it reads a tensor that it was not given as an argument:",
                quoted(reader.location),
                "which was computed here:",
                quoted(maker.location),
                "The region's backward is a backward of its own. Arguments are cut off from their "
                "graph for it; this tensor is not, so its graph is run there and once more from "
                "the loss, and the first of the two frees it.",
            ]
        ),
        fix=f"# pass the tensor itself as an argument, or\n{REENTRANT_FIX}",
        confidence="likely" if within else "certain",
        events=(maker.seq, reader.seq),
        region_id=region.region_id,
    )
