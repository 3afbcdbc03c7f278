"""Gradients that were verified: ``record(verify=True)``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from autogradviz.events.base import Event
from autogradviz.events.field_types import BackwardId, NodeId, TensorId, event

FactKind: TypeAlias = Literal["node", "edge", "leaf"]
"""The fact that a gradient depends on.

``node``: what a node returned is the derivative of its op at the inputs that the op had. ``edge``:
what arrived at a node is the sum of what its consumers sent. ``leaf``: ``.grad`` grew by what
arrived.
"""

ChangedBy: TypeAlias = Literal[
    "", "hook", "straight-through", "gradient function", "rounding hooks"
]  # fmt: skip
"""The part of the program that changed a gradient on purpose; "" if the gradient is wrong.

``hook``: a hook of the user ran there. ``straight-through``: a custom Function passes the
derivative, and a gradient where the derivative is zero. ``gradient function``: a custom Function
returns its input and exists only to change the gradient. ``rounding hooks``: saved-tensor hooks
return nearly the values that they packed.
"""


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class GradientFactFailed(Event):
    """A gradient was not the one that follows from the recorded forward (``verify`` only)."""

    backward_id: BackwardId
    node_id: NodeId  # that returned it, received it, or accumulates it
    fact: FactKind
    changed_by: ChangedBy
    position: int  # the input of the op, or of the node, whose gradient it is
    relative_error: float | None  # of the L2 norm; None if infinite
    tensor_id: TensorId | None  # the leaf, if it has one
    written_slot: str  # the saved tensor whose content is not that of the forward, "" if none


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class GradientFactsNotChecked(Event):
    """A run of a node could not be verified (``verify`` only)."""

    node_name: str
    reason: str
    unverified_count: int  # runs of such nodes
    node_id: NodeId


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class GradientFactsChecked(Event):
    """The facts that were verified during the recording (``verify`` only)."""

    node_facts: int
    edge_facts: int
    leaf_facts: int
