"""Norms of the gradients of weights."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod, sqrt
from typing import TYPE_CHECKING, Final

from autogradviz.events import NormRead

if TYPE_CHECKING:
    from autogradviz.analysis import Op
    from autogradviz.diagnose.evidence.facts import Evidence

_DIMENSIONS: Final = 2  # of a weight; gradients of biases and scales differ in magnitude


@dataclass(frozen=True, slots=True)
class WeightGradient:
    """The size of one weight's gradient."""

    tensor_id: int
    name: str
    size: float  # root mean square of the entries
    first: Op  # the first op that takes the weight
    seq: int  # of the event that recorded the norm


def weight_gradients(evidence: Evidence) -> list[WeightGradient]:
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
            found.append(WeightGradient(event.tensor_id, names[0], size, user, event.seq))
    return sorted(found, key=lambda gradient: gradient.first.seq)
