"""Events of the recording itself: its beginning and end, steps, failures."""

from __future__ import annotations

from dataclasses import dataclass

from autogradviz.events.base import Event
from autogradviz.events.field_types import (
    BackwardId,
    EventSeq,
    NodeId,
    SourceText,
    TensorId,
    ValueText,
    event,
)


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingStarted(Event):
    """A recording started. This is the first event."""

    started_at_ns: int  # wall clock, nanoseconds since 1970
    autogradviz_version: str
    torch_version: str
    python_version: str
    model_name: str | None  # class of the model, None if no model was given
    options: tuple[str, ...]  # what was enabled: "ops", "stacks", …


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingEnded(Event):
    """A recording ended. A trace without this event is torn."""

    event_count: int  # events before this one
    recorder_ns: int  # the work of the recorder on all threads, which is in no time of an event


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingInterrupted(Event):
    """A signal came, or no event for a long time; ``stack_id`` is where the main thread stood."""

    reason: str  # "SIGTERM", "SIGINT", "no event for 120 s"


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderFailed(Event):
    """A hook point of the recorder raised; the user's program continued."""

    hook_point: str  # the part of the recorder
    message: ValueText


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderLimited(Event):
    """The recorder stopped observing something, to stay safe or small.

    ``stack_id`` is where it happened first, if that belongs to the message.
    """

    hook_point: str  # the part of the recorder
    message: str


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class OlderSavesHeld(Event):
    """Steps whose events were dropped had saved tensors that were still held at the end."""

    nbytes: int  # of the storages that nothing in the kept steps holds
    steps: int  # that hold them


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class TensorsAlive(Event):
    """The memory of some tensors was alive when the recording ended."""

    tensor_ids: tuple[TensorId, ...]  # of recorded tensors, also of parameters and inputs


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class TensorsFreedAfterSteps(Event):
    """The memory of some tensors was alive when the last two steps ended, and freed afterwards."""

    tensor_ids: tuple[TensorId, ...]  # one of each storage


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class OldGraphHeld(Event):
    """A node of an earlier step was alive when the recording ended, and this object kept it."""

    node_name: str  # of the oldest such node
    sequence_nr: int  # of that node
    owner_root: SourceText  # "global history of module __main__"
    owner_path: SourceText  # from the root to the node: "list[0] > Tensor.grad_fn"


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnded(Event):
    """A training step ended: after ``optimizer.step()``, or without one after each backward."""

    step: int  # from 0
    end_seq: EventSeq  # events with smaller numbers belong to this step or an earlier one
    step_ops: int | None  # ops since the last event of this kind; None if they are not recorded
    step_digest: int | None  # of their names, phases and order: equal if they are the same


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class StepUnfinished(Event):
    """The recording of one rank of a distributed run ended after the end of its last step."""

    step_ops: int | None  # ops since the last step ended; None if they are not recorded
    step_digest: int | None  # as in ``StepEnded``


@event(in_every_module=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRaised(Event):
    """An exception left the recorded block; ``stack_id`` is its traceback.

    If it wraps an error of PyTorch, or was raised while one was handled, another event follows for
    that one.
    """

    type_name: str  # "torch.utils.checkpoint.CheckpointError"
    message: str
    node_id: NodeId | None  # the node that was running
    backward_id: BackwardId | None
