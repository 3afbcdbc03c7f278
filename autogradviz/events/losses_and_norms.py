"""Losses, and norms of gradients, parameters and outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from autogradviz.events.base import Event
from autogradviz.events.field_types import BackwardId, NodeId, OpSeq, TensorId, event

Place: TypeAlias = Literal["root", "gradient"]
"""The object that a norm belongs to: a root of a backward, or the ``.grad`` of a leaf."""


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class NormRead(Event):
    """The norm of a loss, or of the gradient in a leaf's ``.grad``, was read.

    Gradients are read when the recording ends; with fingerprints, after each backward. Those of a
    thread that outlives the recording are read after its last backward.
    """

    backward_id: BackwardId  # the backward from the root, or the last one that reached the leaf
    tensor_id: TensorId  # the root, or the leaf
    place: Place
    norm: float | None  # L2, summed in float32 or wider; None if NaN or infinite


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class LossRead(Event):
    """A number from which a backward started was read when its step ended.

    Only numbers on the CPU: reading another device's would wait for it.
    """

    backward_id: BackwardId
    tensor_id: TensorId  # the root
    loss: float | None  # None if NaN or infinite


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class LossDivisorRead(Event):
    """A number that the loss of a backward was divided by was read, such as ``mask.sum()``.

    Or the weight of the targets that a cross entropy is the mean of. Only numbers on the CPU.
    """

    backward_id: BackwardId
    tensor_id: TensorId  # the divisor
    divisor: float


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class SingularOperandRead(Event):
    """A node had saved entries at which the derivative of its op is NaN or infinite.

    Read when a backward starts from a number on the CPU, from saved tensors on the CPU: always if
    the number is NaN or infinite, else while reading takes a small share of the time.
    """

    backward_id: BackwardId
    node_id: NodeId
    slot: str  # "self", "other" or "result"
    entries: int  # how many
    not_finite: bool  # they are NaN or infinite themselves, and the op is not singular there


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class StepNormRead(Event):
    """The norm of the gradient in a leaf's ``.grad`` was read when a step ended.

    Only while all events are written to a file, only on the CPU, and not at every step: reading
    takes at most 2 % of the time.
    """

    backward_id: BackwardId  # the last one that reached the leaf
    tensor_id: TensorId  # the leaf
    norm: float | None  # L2, summed in float32 or wider; None if NaN or infinite


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class LocalGradientNormRead(Event):
    """The norm of this rank's part of a gradient was read: a leaf's ``.grad`` is a ``DTensor``.

    It is read when those of other gradients are, ``NormRead`` and ``StepNormRead``.
    """

    backward_id: BackwardId  # the last one that reached the leaf, or the whole parameter
    tensor_id: TensorId  # the leaf
    placements: tuple[str, ...]  # of the gradient: of "Replicate()" alone, the part is the whole
    norm: float | None  # L2, summed in float32 or wider; None if NaN or infinite


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class LeafGradientRead(Event):
    """The sum and the norm of a leaf's ``.grad`` were read when a step, or the recording, ended.

    With ``record(norms=True)`` only. Of a ``DTensor``, the local part is read.
    """

    tensor_id: TensorId  # the leaf
    entry_sum: float | None  # in float64; None if an entry is NaN or infinite
    norm: float | None  # L2, summed in float64; None if an entry is NaN or infinite


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class GradientFound(Event):
    """A leaf that no backward of this process reached had a gradient when a step ended.

    Of one of several ranks only: the gradient is that of other ranks.
    """

    tensor_id: TensorId


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterNormRead(Event):
    """The norm of a leaf was read at the end of the recording.

    Of all leaves in the recording of one of several ranks, else of those whose gradient is zero.
    Also of frozen parameters of zeros, of two dimensions or more, on the CPU.
    """

    tensor_id: TensorId
    norm: float | None  # L2, summed in float64; None if NaN or infinite


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class OutputNormRead(Event):
    """The sum and the norm of an output of an op were read (``record(norms=True)`` only).

    Of a ``DTensor``, the local part is read. Outputs of collectives are not, because they may
    not be complete yet.
    """

    op_seq: OpSeq | None
    position: int  # in ``OpCalled.outputs``
    entry_sum: float | None  # in float64; None if an entry is NaN or infinite
    norm: float | None  # L2, summed in float64; None if an entry is NaN or infinite


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class NotFiniteSeen(Event):
    """NaN or infinity was found in the values of an op's input or output (fingerprints only)."""

    content_hash: int  # as in ``OpCalled.input_hashes`` and ``output_hashes``
    nan_count: int  # elements
    infinity_count: int  # elements
