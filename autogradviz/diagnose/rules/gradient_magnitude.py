"""Gradients of very unequal size, and gradients that are exactly nothing: hints from norms."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.gradient_flow import storages
from autogradviz.diagnose.finding import Finding
from autogradviz.diagnose.formatting import fit, listed, quoted
from autogradviz.diagnose.page import Page
from autogradviz.diagnose.rule import NoError, rule
from autogradviz.events import NormRead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Node, Op
    from autogradviz.diagnose.evidence.facts import Evidence

_UNEQUAL: Final = 1e6  # how many times the largest layer's gradient is the smallest one's
_HUGE: Final = 1e4  # of one entry, on average
_WEIGHTS: Final = 2  # dimensions: biases and scales have gradients of their own size
_LAYERS: Final = 3  # fewer make no trend
_STEPS: Final = frozenset({"RoundBackward", "SignBackward", "FloorBackward", "CeilBackward",
                           "TruncBackward", "SgnBackward", "BernoulliBackward"})  # fmt: skip


GRADIENT_EXPLODING_PAGE: Final = Page(
    slug="gradient-exploding",
    title="Gradients are huge",
    means="""The mean entry of some weight's gradient is larger than ten thousand. One step with
    it may throw the weights far away. A hint: a scaled loss looks the same.""",
    happens="""Weights that are too large, recurrence over many steps, a division by something
    small.""",
    fix="""Clip with torch.nn.utils.clip_grad_norm_; normalize between layers; scale the initial
    weights down.""",
    example="""
import torch
import autogradviz

net = torch.nn.Sequential(*[torch.nn.Linear(8, 8, bias=False) for _ in range(8)])
for parameter in net.parameters():
    torch.nn.init.constant_(parameter, 2.0)
with autogradviz.record(net) as trace:
    net(torch.ones(2, 8)).sum().backward()  # <-- named
""",
)
GRADIENT_VANISHING_PAGE: Final = Page(
    slug="gradient-vanishing",
    title="Gradients vanish on their way back",
    means="""Early weights get a gradient that is more than a million times smaller than that of
    late ones: they hardly learn. A hint.""",
    happens="""Many layers whose slope is small: sigmoid, tanh at its ends, small weights.""",
    fix="""Residual paths, normalization between layers, ReLU-like activations, initial weights of
    the right scale.""",
    example="""
import torch
import autogradviz

layers = [part for _ in range(12) for part in (torch.nn.Linear(8, 8), torch.nn.Sigmoid())]
net = torch.nn.Sequential(*layers)
with autogradviz.record(net) as trace:
    net(torch.rand(2, 8)).sum().backward()  # <-- named
""",
)
GRADIENT_ZERO_PAGE: Final = Page(
    slug="gradient-zero",
    title="A step function passes on zeros",
    means="""round, floor, sign and their like are flat wherever they do not jump: their gradient
    is 0, so that everything before them gets zeros and does not learn. A hint.""",
    happens="""Quantisation without a straight-through estimator.""",
    fix="""Let the gradient pass as if there were no step: x + (x.round() - x).detach().""",
    example="""
import torch
import autogradviz

net = torch.nn.Linear(3, 3)
with autogradviz.record(net) as trace:
    steps = net(torch.rand(2, 3)).round()  # <-- named
    steps.square().sum().backward()
""",
)


@dataclass(frozen=True, slots=True)
class _Layer:
    """One weight that got a gradient."""

    name: str
    size: float  # root mean square of its gradient's entries
    first: Op  # that used it
    seq: int  # of the norm


@rule(
    "gradient-exploding",
    "gradient-vanishing",
    "gradient-zero",
    when=NoError(),
    priority=340,
    pages=(GRADIENT_EXPLODING_PAGE, GRADIENT_VANISHING_PAGE, GRADIENT_ZERO_PAGE),
    at_most=None,
)
def find_uneven_gradients(evidence: Evidence) -> Iterator[Finding]:
    """Yield a hint where gradients vanish, explode, or are all zero behind a step function."""
    layers = sorted(_layers(evidence), key=lambda layer: layer.first.seq)
    if len(layers) >= _LAYERS:
        yield from _trend(layers)
    nothing = [layer for layer in layers if layer.size == 0]
    step = _step_function(evidence)
    if nothing and step is not None:
        yield _flat(step, nothing)


def _layers(evidence: Evidence) -> Iterator[_Layer]:
    analysis = evidence.analysis
    users: dict[int, Op] = {}
    for op in analysis.ops:
        for storage_id in storages(op.inputs):
            users.setdefault(storage_id, op)
    for event in analysis.log.of(NormRead):
        tensor, names = analysis.tensors[event.tensor_id], analysis.parameters.get(event.tensor_id)
        user = users.get(tensor.storage_id) if tensor.storage_id is not None else None
        weight = event.place == "gradient" and len(tensor.shape) >= _WEIGHTS
        if weight and names and user is not None and event.norm is not None:
            yield _Layer(names[0], event.norm / sqrt(prod(tensor.shape)), user, event.seq)


def _trend(layers: list[_Layer]) -> Iterator[Finding]:
    """Yield a finding on weights in the order in which the forward uses them."""
    told = [layer for layer in layers if layer.size > 0]
    if len(told) < _LAYERS:
        return
    largest, smallest = max(told, key=lambda a: a.size), min(told, key=lambda a: a.size)
    earlier_is_larger = largest.first.seq < smallest.first.seq
    if largest.size >= _HUGE and (earlier_is_larger or smallest.size * _UNEQUAL > largest.size):
        yield _scaled(layers, largest, "gradient-exploding")
    elif smallest.size * _UNEQUAL <= largest.size and not earlier_is_larger:
        yield _scaled(layers, smallest, "gradient-vanishing")


def _scaled(layers: list[_Layer], worst: _Layer, slug: str) -> Finding:
    shown = [layers[i * (len(layers) - 1) // 5] for i in range(6)] if len(layers) > 6 else layers  # noqa: PLR2004 - rows
    rows = [f"    {layer.name}: {layer.size:.1e}" for layer in shown]
    last = layers[-1]
    huge = slug == "gradient-exploding"
    return Finding(
        slug=slug,
        title=f"The gradient {'is huge' if huge else 'vanishes on its way back'}: "
        f"{worst.size:.1e} an entry at {worst.name}",
        culprit=worst.first.location,
        victim=last.first.location,
        explanation=fit(
            [
                "The root mean square of each weight's gradient, in the order of the forward "
                "(the loss is below):",
                *rows,
                f"Gradients flow upwards here. {worst.name} is used at:",
                quoted(worst.first.location),
            ]
        ),
        fix=(
            "# clip: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0);\n"
            "# normalize between layers, scale the initial weights down, add residual paths"
            if huge
            else "# residual paths, normalization between layers, ReLU-like activations,\n"
            "# initial weights of the right scale"
        ),
        confidence="hint",
        events=(worst.seq,),
    )


def _step_function(evidence: Evidence) -> Node | None:
    nodes = evidence.analysis.graph.nodes.values()
    return next((n for n in nodes if n.name.rstrip("0123456789") in _STEPS and n.runs), None)


def _flat(step: Node, nothing: list[_Layer]) -> Finding:
    name = step.op.name if step.op is not None else step.name
    return Finding(
        slug="gradient-zero",
        title=f"{len(nothing)} weights got a gradient of zeros: {name} has no slope",
        culprit=step.location,
        victim=nothing[0].first.location,
        explanation=fit(
            [
                f"{listed([layer.name for layer in nothing])}: every entry of the gradient is 0.",
                f"{name} is on the way, and is flat wherever it is not a jump, so that it passes "
                "on zeros:",
                quoted(step.location),
            ]
        ),
        fix="x + (x.round() - x).detach()  # straight through: its gradient is that of x",
        confidence="hint",
        events=(nothing[0].seq,),
        nodes=(step.node_id,),
    )
