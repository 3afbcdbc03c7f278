"""Gradients of very different size in different layers: hints from gradient norms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.gradient_norms import weight_gradients
from autogradviz.diagnose.evidence.leaf_gradients import UNSCALE
from autogradviz.diagnose.explain_page import Page
from autogradviz.diagnose.rule import Draft, NoError, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.diagnose.evidence.facts import Evidence
    from autogradviz.diagnose.evidence.gradient_norms import WeightGradient

_RATIO: Final = 1e6  # of the largest layer's gradient to the smallest one's
_HUGE: Final = 1e4  # root mean square of the entries
_LAYERS: Final = 3  # fewer show no trend
_ROWS: Final = 6  # layers listed

EXPLODING: Final = Page(
    slug="gradient-exploding",
    title="Gradients are huge",
    means="""The root mean square of a weight's gradient is larger than ten thousand. One step with
    it can move the weights far away. A hint: a scaled loss looks the same.""",
    happens="""Weights that are too large, recurrence over many steps, a division by a small
    number.""",
    fix="""Clip with torch.nn.utils.clip_grad_norm_, normalize between layers, or scale the initial
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
VANISHING: Final = Page(
    slug="gradient-vanishing",
    title="Gradients vanish towards the first layers",
    means="""The gradients of early weights are more than a million times smaller than those of
    late weights, so the early weights hardly change. A hint.""",
    happens="""Many layers with a small derivative: sigmoid, saturated tanh, small weights.""",
    fix="""Residual connections, normalization between layers, ReLU-like activations, initial
    weights of the right scale.""",
    example="""
import torch
import autogradviz

layers = [part for _ in range(12) for part in (torch.nn.Linear(8, 8), torch.nn.Sigmoid())]
net = torch.nn.Sequential(*layers)
with autogradviz.record(net) as trace:
    net(torch.rand(2, 8)).sum().backward()  # <-- named
""",
)


@rule(
    "gradient-exploding",
    "gradient-vanishing",
    when=NoError(),
    priority=340,
    pages=(EXPLODING, VANISHING),
    needs={"ops"},
)
def gradient_magnitude(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint if gradients explode or vanish from the last layer to the first."""
    layers = weight_gradients(evidence)
    nonzero = [layer for layer in layers if layer.size > 0]
    if len(nonzero) < _LAYERS:
        return
    largest = max(nonzero, key=lambda layer: layer.size)
    smallest = min(nonzero, key=lambda layer: layer.size)
    earlier_is_larger = largest.first.seq < smallest.first.seq
    scaled = any(op.name == UNSCALE for op in evidence.analysis.ops)
    if scaled and largest.size >= _HUGE:
        return  # read before a GradScaler divided them
    if largest.size >= _HUGE and (earlier_is_larger or smallest.size * _RATIO > largest.size):
        yield _draft(layers, largest, huge=True)
    elif smallest.size * _RATIO <= largest.size and not earlier_is_larger:
        yield _draft(layers, smallest, huge=False)


def _draft(layers: list[WeightGradient], worst: WeightGradient, *, huge: bool) -> Draft:
    last = len(layers) - 1
    listed = [layers[i * last // (_ROWS - 1)] for i in range(_ROWS)] if last >= _ROWS else layers
    return Draft(
        slug=EXPLODING.slug if huge else VANISHING.slug,
        title=f"The gradient {'is huge' if huge else 'vanishes towards the first layers'}: "
        f"{worst.size:.1e} per entry at {worst.name}",
        culprit=worst.first,
        victim=layers[-1].first,
        explanation=[
            "The root mean square of each weight's gradient, in the order of the forward "
            "(the loss is below):",
            *[f"    {layer.name}: {layer.size:.1e}" for layer in listed],
            f"Gradients flow upwards here. {worst.name} is used at:",
            worst.first,
        ],
        fix="# clip: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0);\n"
        "# normalize between layers, scale the initial weights down, add residual connections"
        if huge
        else "# residual connections, normalization between layers, ReLU-like activations,\n"
        "# initial weights of the right scale",
        confidence="hint",
        evidence=(worst.seq,),
    )
