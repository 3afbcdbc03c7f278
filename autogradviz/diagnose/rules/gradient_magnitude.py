"""Gradients of very different size in different layers: hints from gradient norms."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt
from typing import TYPE_CHECKING, Final

from autogradviz.diagnose.evidence.gradient_storages_and_steps import UNSCALE
from autogradviz.diagnose.rule import Draft, NoError, rule
from autogradviz.events import NormRead

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op
    from autogradviz.diagnose.evidence.facts import Evidence

_RATIO: Final = 1e6  # of the largest layer's gradient to the smallest one's
_HUGE: Final = 1e4  # root mean square of the entries
_LAYERS: Final = 3  # fewer show no trend
_ROWS: Final = 6  # layers listed
_DIMENSIONS: Final = 2  # of a weight; gradients of biases and scales differ in magnitude


@dataclass(frozen=True, slots=True)
class _WeightGradient:
    """The size of one weight's gradient."""

    tensor_id: int
    name: str
    size: float  # root mean square of the entries
    first: Op  # the first op that takes the weight
    seq: int  # of the event that recorded the norm


@rule(
    "gradient-exploding",
    "gradient-vanishing",
    mechanism="value",
    when=NoError(),
    after="leaf_frozen",
    needs={"ops"},
)
def gradient_magnitude(evidence: Evidence) -> Iterator[Draft]:
    """Yield a hint if gradients explode or vanish from the last layer to the first."""
    layers = _weight_gradients(evidence)
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


def _weight_gradients(evidence: Evidence) -> list[_WeightGradient]:
    """Return the gradients of weights, in the order in which the forward uses the weights."""
    analysis = evidence.analysis
    norms = analysis.log.of(NormRead)
    if not norms:
        return []
    users = evidence.first_readers
    found = []
    for event in norms:
        tensor, names = analysis.tensors[event.tensor_id], analysis.parameters.get(event.tensor_id)
        user = users.get(tensor.storage_id) if tensor.storage_id is not None else None
        weight = event.place == "gradient" and len(tensor.shape) >= _DIMENSIONS
        if weight and names and user is not None and event.norm is not None:
            size = event.norm / sqrt(prod(tensor.shape))
            found.append(_WeightGradient(event.tensor_id, names[0], size, user, event.seq))
    return sorted(found, key=lambda gradient: gradient.first.seq)


def _draft(layers: list[_WeightGradient], worst: _WeightGradient, *, huge: bool) -> Draft:
    last = len(layers) - 1
    listed = [layers[i * last // (_ROWS - 1)] for i in range(_ROWS)] if last >= _ROWS else layers
    return Draft(
        slug="gradient-exploding" if huge else "gradient-vanishing",
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
        parameters=[layer.tensor_id for layer in layers],
    )
