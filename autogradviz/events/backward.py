"""Backwards, nodes of the graph, their runs, and optimizer steps."""

from __future__ import annotations

from dataclasses import dataclass

from autogradviz.events.base import Event
from autogradviz.events.field_types import BackwardId, NodeId, TensorId, event


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen(Event):
    """An autograd node was seen for the first time.

    ``next_node_ids`` has one entry for each of the node's ``next_functions``, NO_ID for None.
    Gradients flow from a node to its next nodes.
    """

    node_id: NodeId
    node_name: str  # "AddmmBackward0"
    sequence_nr: int | None  # None for AccumulateGrad, which has no place in creation order
    next_node_ids: tuple[NodeId, ...]
    next_inputs: tuple[int, ...]  # index of the next node's input that the gradient feeds
    tensor_id: TensorId | None  # the leaf of an AccumulateGrad


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardStarted(Event):
    """The autograd engine was entered."""

    backward_id: BackwardId
    parent_backward_id: BackwardId | None  # the backward that this one is nested in
    root_ids: tuple[NodeId, ...]
    root_tensor_ids: tuple[TensorId, ...]  # including roots without a node
    input_ids: tuple[NodeId, ...]  # nodes of the ``inputs`` argument
    retain_graph: bool
    create_graph: bool
    accumulate: bool  # True: into ``.grad``; False: ``torch.autograd.grad``
    input_tensor_ids: tuple[TensorId, ...]  # the ``inputs`` argument; leaves have no node


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardEnded(Event):
    """The autograd engine returned or raised."""

    backward_id: BackwardId
    failed: bool


@event(in_every_module=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardRaised(Event):
    """An outermost backward raised an exception, which the program may catch."""

    outermost_backward_id: BackwardId
    type_name: str  # of the error of PyTorch behind it, if it is another one
    message: str
    node_id: NodeId | None  # the node that was running
    backward_id: BackwardId | None  # in which it ran


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStarted(Event):
    """A node was about to run."""

    backward_id: BackwardId
    node_id: NodeId
    inputs: tuple[TensorId, ...]  # incoming gradients, NO_ID for None; without ops, one id a shape


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class GradientBuffersOffered(Event):
    """A custom backward read ``ctx.input_grad_buffers``, and the engine offered buffers.

    They hold the gradients that arrived before at inputs of the Function; its backward may add to
    them in place. Recorded with operators only.
    """

    backward_id: BackwardId | None
    node_id: NodeId | None  # of the Function
    tensor_ids: tuple[TensorId, ...]  # the buffers


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFinished(Event):
    """A node ran; recorded when the next node of its thread starts, or the backward ends."""

    backward_id: BackwardId
    node_id: NodeId


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class GradAccumulated(Event):
    """A gradient was accumulated into the ``.grad`` of a leaf."""

    backward_id: BackwardId
    node_id: NodeId
    tensor_id: TensorId  # the leaf


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerStepped(Event):
    """``step`` of an optimizer of PyTorch, or of a class derived from it, returned."""

    optimizer_name: str  # "Adam"
    tensor_ids: tuple[TensorId, ...]  # the tensors that it updates, in the order of its groups
    gradient_count: int | None  # how many of them have a gradient now; None if it was not read


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenTensorsFound(Event):
    """An optimizer stepped, and some of its tensors require no gradient and have none.

    The next ``OptimizerStepped`` of the thread is that step.
    """

    tensor_ids: tuple[TensorId, ...]
    plain_tensor_ids: tuple[TensorId, ...]  # those that are no torch.nn.Parameter


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class NoOptimizerFound(Event):
    """Parameters had received gradients, optimizers had stepped, and none had these parameters.

    Optimizers that have not stepped are searched for as well, when a backward begins or the
    recording ends, at most eight times.
    """

    tensor_ids: tuple[TensorId, ...]  # the parameters
