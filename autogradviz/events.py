"""Every event a recording can hold: the only schema.

Events are facts in the past tense. They hold no tensors, only numbers and text, so that a
trace keeps nothing alive and opens without torch. A definition (``FrameSeen``, ``TensorSeen``,
``ModuleSeen`` …) always stands before the first event that uses its id, so the readable part of
a torn file can be understood by itself.

Two fields with one name have one type in every event; ``tests/unit/test_events.py`` checks it,
because the file format stores one column a name.

Ids are small integers counted by the recorder, one counter a family, and never ``id()``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Literal, TypeAlias

Phase: TypeAlias = Literal["forward", "backward", "recompute"]
"""When an op ran. Recomputation inside a backward is ``recompute``."""

PackedBy: TypeAlias = Literal[
    "pytorch", "checkpoint", "recompute", "allow_mutation", "offload", "user"
]
"""Who keeps a saved tensor: PyTorch itself, or the pair of saved-tensor hooks that was on top."""

Outcome: TypeAlias = Literal["completed", "early_stop", "error"]
"""How a recomputation ended."""

HookKind: TypeAlias = Literal[
    "tensor", "retain_grad", "post_accumulate_grad", "multi_grad", "node", "node_pre", "node_post",
    "module_backward_pre", "module_backward",
]  # fmt: skip
"""What a hook hangs on. Of a node's hook only a run tells whether it comes before or after."""

Place: TypeAlias = Literal["root", "gradient"]
"""Whose norm was read: what backward began at, or what it left in a leaf's ``.grad``."""

NO_ID: Final = -1
"""Stands for "none" inside a tuple of ids (an absent gradient, an edge that leads nowhere)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fact: its number, when, on which thread, and from which Python stack."""

    seq: int  # position in the recording, counted over all threads
    time_ns: int  # monotonic, 0 = the recording began
    thread: int  # 0 = the thread that opened the recording
    stack_id: int | None  # the Python stack that caused it, where known


# --- the recording itself -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingStarted(Event):
    """The first event: what was recording what."""

    started_at_ns: int  # wall clock, nanoseconds since 1970
    autogradviz_version: str
    torch_version: str
    python_version: str
    model_name: str | None  # the model's class, when one was given
    options: tuple[str, ...]  # "ops", "stacks": what was switched on


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingEnded(Event):
    """The last event; a trace without it is torn."""

    event_count: int  # events before this one


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderFailed(Event):
    """The recorder itself failed at one seam; the user's step went on."""

    seam: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderLimited(Event):
    """The recorder stopped looking on purpose, to stay safe or small."""

    seam: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnded(Event):
    """A training step ended: an optimizer stepped, or, where none is used, backward ended."""

    step: int  # from 0
    end_seq: int  # events with smaller numbers belong to this step or to those before it


# --- definitions ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSeen(Event):
    """One line of one function, as it appears in stacks."""

    frame_id: int
    filename: str
    lineno: int  # from 1
    function: str  # qualified, as ``Attention.forward``
    text: str  # the source line without indentation, "" where there is no source
    library: bool  # inside torch, the standard library or autogradviz itself


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSeen(Event):
    """One Python stack. The event's own ``stack_id`` is the id that it defines."""

    frame_ids: tuple[int, ...]  # innermost first


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLineRead(Event):
    """One line of a user's source file, near a frame that was seen."""

    filename: str
    lineno: int
    text: str  # with indentation


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSeen(Event):
    """A file is a notebook's cell, compiled by IPython under a name of its own."""

    filename: str
    cell: int  # 3 of "In [3]"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSeen(Event):
    """One window on one storage: the same place, shape and dtype are the same tensor here."""

    tensor_id: int
    storage_id: int | None  # None where there is none of its own (sparse) or nobody follows it
    shape: tuple[int, ...]
    dtype: str  # "float32"
    device: str  # "cpu", "cuda:0"
    nbytes: int  # of this window
    storage_nbytes: int  # of the whole storage, 0 where there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSeen(Event):
    """One ``nn.Module`` object."""

    module_id: int
    parent_module_id: int | None
    module_name: str  # qualified from its root, "h.0.attn"; "" for the model that was given
    type_name: str  # "CausalSelfAttention"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSeen(Event):
    """One parameter or buffer under one name; a shared one is seen once a name."""

    tensor_id: int
    module_id: int
    parameter_name: str  # qualified, "h.0.attn.c_attn.weight"
    buffer: bool
    requires_grad: bool


# --- ops ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCalled(Event):
    """One operator ran below autograd."""

    op: str  # "aten.addmm.default"
    phase: Phase
    inputs: tuple[int, ...]  # tensor ids, in the order of the arguments
    input_versions: tuple[int, ...]  # before the op; NO_ID where unknown
    outputs: tuple[int, ...]
    output_versions: tuple[int, ...]  # after the op; NO_ID where unknown
    written: tuple[int, ...]  # tensor ids that the op wrote in place
    input_hashes: tuple[int, ...]  # contents before the op; empty unless fingerprints are recorded
    output_hashes: tuple[int, ...]  # contents after the op; NO_ID where none can be had
    duration_ns: int
    sequence_nr: int | None  # of the autograd node that the op created on this thread
    node_id: int | None  # the node whose backward called the op
    call_id: int | None  # innermost module call
    region_id: int | None  # innermost checkpoint region, in forward and in recomputation
    recompute_id: int | None
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomDrawn(Event):
    """An op drew from a random generator of torch's."""

    op: str  # "aten.bernoulli_.float"
    op_seq: int | None  # the OpCalled
    generator: str  # "default", or "given" where the caller passed one of its own
    device: str  # whose generator: "cpu", "cuda:0"


# --- the graph ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen(Event):
    """The recorder looked at one autograd node for the first time.

    ``next_node_ids`` has one entry for each of the node's ``next_functions``, NO_ID where
    nothing follows; gradients flow from a node to its next nodes.
    """

    node_id: int
    node_name: str  # "AddmmBackward0"
    sequence_nr: int | None  # None for AccumulateGrad, which has no place in creation order
    next_node_ids: tuple[int, ...]
    next_inputs: tuple[int, ...]  # which input of the next node the gradient feeds
    tensor_id: int | None  # the leaf, for AccumulateGrad


# --- saved tensors --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSaved(Event):
    """One slot of one node keeps a tensor for backward.

    PyTorch's own saves are seen when the recorder looks at their node, which may be much later
    than the op: the save itself happened at the op with the same ``sequence_nr``. Saves through
    hooks are seen at once, before their slot is known (``SlotSeen`` follows).
    """

    saved_id: int
    node_id: int | None
    sequence_nr: int | None  # of the node that saved it
    slot: str | None  # "self", "result", "saved_tensors[0]"
    tensor_id: int  # NO_ID where a user's hook keeps something that is no tensor
    version: int | None  # the counter when it was saved, None where it could not be known
    packed_by: PackedBy
    region_id: int | None
    recompute_id: int | None
    position: int | None  # nth save of its region or recomputation, from 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSeen(Event):
    """The node and slot of an earlier ``TensorSaved`` that went through hooks."""

    saved_id: int
    node_id: int
    slot: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorUnpacked(Event):
    """A node took back one saved tensor.

    The versions differ when the tensor was written in between. PyTorch raises then, unless
    saved-tensor hooks switched its check off.
    """

    saved_id: int
    node_id: int | None
    version: int | None  # when saved
    seen_version: int | None  # now; None where only the hooks know
    failed: bool  # the unpack hook raised
    saved_hash: int | None  # the content when saved; None unless fingerprints are recorded
    seen_hash: int | None  # the content handed to backward


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWritten(Event):
    """What a user's pack hook had given was written before its unpack hook was asked for it."""

    saved_id: int
    tensor_id: int  # what the hook gave, or held in what it gave
    since_seq: int  # events with larger numbers happened after the hook had packed
    version: int | None  # of that tensor when the hook had packed
    seen_version: int | None  # now
    saved_hash: (
        int | None
    )  # its content when the hook had packed; None unless fingerprints are recorded
    seen_hash: int | None  # now


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMoved(Event):
    """``save_on_cpu`` copied a saved tensor: away when it was saved, back when it was needed.

    A tensor that is on the CPU already is kept as it is, unless pinned memory was asked for.
    """

    saved_id: int
    device: str  # where it went
    nbytes: int
    pinned: bool  # the copy on the CPU stands in pinned memory


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorReleased(Event):
    """A slot gave its tensor up: the node ran without ``retain_graph``, or died."""

    saved_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionBumped(Event):
    """A tensor was written: its version counter moved."""

    tensor_id: int
    storage_id: int | None
    version: int  # before
    seen_version: int  # after
    op: str  # "aten.add_.Tensor", "increment_version", or "" where nobody was seen writing
    op_seq: int | None  # the OpCalled that wrote


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRestored(Event):
    """A version counter was set back: whoever wrote vouches that nobody can tell.

    Sharded modules do so when they gather a parameter's values again.
    """

    tensor_id: int
    storage_id: int | None
    version: int  # before
    seen_version: int  # after


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationCloned(Event):
    """``allow_mutation_on_saved_tensors`` copied a saved tensor just before a write."""

    tensor_id: int  # the tensor about to be written
    storage_id: int | None
    clone_id: int  # the tensor that backward will use
    op_seq: int | None  # the clone


# --- backward -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardStarted(Event):
    """The engine was entered."""

    backward_id: int
    parent_backward_id: int | None  # the backward that this one runs inside
    root_ids: tuple[int, ...]  # node ids
    root_tensor_ids: tuple[int, ...]  # tensor ids; also of roots without a node
    input_ids: tuple[int, ...]  # node ids, when gradients of named inputs were asked for
    retain_graph: bool
    create_graph: bool
    accumulate: bool  # True: into ``.grad``; False: ``torch.autograd.grad``
    input_tensor_ids: tuple[int, ...]  # the same inputs as tensors; leaves have no node


@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardEnded(Event):
    """The engine was left."""

    backward_id: int
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStarted(Event):
    """A node is about to run."""

    backward_id: int
    node_id: int
    inputs: tuple[int, ...]  # gradients coming in, NO_ID for None; without ops one id a shape


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFinished(Event):
    """A node ran; told when the next one starts on its thread, or the backward ends."""

    backward_id: int
    node_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GradAccumulated(Event):
    """A gradient reached a leaf's ``.grad``."""

    backward_id: int
    node_id: int
    tensor_id: int  # the leaf


@dataclass(frozen=True, slots=True, kw_only=True)
class NormRead(Event):
    """How large a loss was, or the gradient that a leaf was left with.

    Gradients are read when the recording ends; with fingerprints, after each backward.
    """

    backward_id: int  # that began at the root; the last that reached the leaf
    tensor_id: int  # the root, or the leaf that the gradient belongs to
    place: Place
    norm: float | None  # L2, summed in float32 or finer; None where that is NaN or infinite


@dataclass(frozen=True, slots=True, kw_only=True)
class NotFiniteSeen(Event):
    """A content that operators took or gave holds NaN or infinities; needs fingerprints."""

    content_hash: int  # as ``OpCalled.input_hashes`` and ``output_hashes`` have it
    nan_count: int  # entries
    infinity_count: int


# --- hooks ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRegistered(Event):
    """A function of the user's is called by backward from now on."""

    hook_id: int
    hook_kind: HookKind
    hook_name: str  # qualified, "Trainer.clip"
    tensor_id: int | None  # the tensor or parameter that it hangs on
    module_id: int | None
    early: bool  # it was registered before the recording, and is noticed only now


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRan(Event):
    """Backward called a hook."""

    hook_id: int
    hook_kind: HookKind
    backward_id: int | None
    node_id: int | None  # the node that was about to run, ran, or had just run
    changed: bool  # it returned another gradient than it was given
    failed: bool
    duration_ns: int


# --- checkpoint -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionEntered(Event):
    """The forward of a checkpointed region began."""

    region_id: int
    parent_region_id: int | None
    call_id: int | None  # the module call that the region stands in
    reentrant: bool
    early_stop: bool
    preserve_rng: bool  # torch's random state is restored for the recomputation
    debug: bool  # both runs are logged, for a better message
    determinism_check: str  # what is compared of saved tensors: "default", "none"
    function: str  # what is checkpointed, "Block.forward"
    module_id: int | None  # the module that is checkpointed, where it is one


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionExited(Event):
    """The forward of a checkpointed region ended."""

    region_id: int
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionCutOff(Event):
    """Autograd does not follow what a reentrant region gives, although gradients are on.

    ``message`` says what it could not see: "arguments" where no tensor among the positional
    arguments requires grad, "results" where every result lies inside a container.
    """

    region_id: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeStarted(Event):
    """A region began to run again."""

    recompute_id: int
    region_id: int | None
    backward_id: int | None
    node_id: int | None  # the node that asked for its saved tensor
    exec_group: int | None  # the ``GraphExecGroup`` that it runs in


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeStopped(Event):
    """A region's second run ended."""

    recompute_id: int
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDecided(Event):
    """The policy of a selectively checkpointed region decided what becomes of one op."""

    op: str
    decision: str  # "must_save", "prefer_recompute", as ``CheckpointPolicy`` names them
    cached: bool  # what it gave is kept for the recomputation
    region_id: int | None
    op_seq: int | None  # the OpCalled


@dataclass(frozen=True, slots=True, kw_only=True)
class OpServed(Event):
    """An op of a recomputation was answered from what the policy had kept; it did not run."""

    op: str
    region_id: int | None
    recompute_id: int | None
    op_seq: int | None  # the OpCalled of the forward that is used again


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksEntered(Event):
    """A pair of saved-tensor hooks keeps what its thread saves from here on: the innermost pair.

    Checkpoint's own pairs are told as regions and recomputations instead.
    """

    pair_id: int
    packed_by: PackedBy  # "offload", "allow_mutation", "user"
    function: str  # its pack hook, "compress"; "save_on_cpu" and the like for PyTorch's own


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksLeft(Event):
    """A pair of saved-tensor hooks was taken away; what it keeps stays with it."""

    pair_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HooksDisabled(Event):
    """Saved-tensor hooks were switched off: who pushes a pair now is told ``message``."""

    message: str


# --- surroundings ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleEntered(Event):
    """A module's forward began; nodes with sequence numbers from here on are its own."""

    call_id: int
    parent_call_id: int | None
    module_id: int
    sequence_nr: int  # the next node's number on this thread


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleExited(Event):
    """A module's forward ended; ``sequence_nr`` is the first number after it."""

    call_id: int
    sequence_nr: int
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged(Event):
    """Something that a checkpointed region can read was not the same when it ran again.

    ``stack_id`` is the write's, where it was seen (attributes of modules); else None.
    """

    region_id: int
    recompute_id: int | None
    state_kind: str  # "object", "random", "context", "thread"
    state_name: str  # "self.calls", "cache.keys", "python random", "torch function modes"
    before: str  # when the region's forward began
    after: str  # when the recomputation began
    in_forward: bool  # the region's own forward changed it


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRepeated(Event):
    """A region's forward changed something that outlives it, and so did its recomputation.

    ``stack_id`` is the write's, where it was seen (attributes of modules); else None.
    """

    region_id: int
    recompute_id: int | None
    state_kind: str  # "object"
    state_name: str  # "self.calls", "losses"
    before: str  # when the region's forward began
    after: str  # when the recomputation ended


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChanged(Event):
    """A switch of the thread's that autograd obeys was thrown, on the line of ``stack_id``.

    What is not at its usual position when the recording begins is told without a line.
    """

    mode: str  # "grad", "inference", "autocast cpu", "autocast cache"
    before: str  # "on", "off"; of autocast the dtype, "bfloat16"
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiresGradChanged(Event):
    """A leaf was told whether it requires a gradient.

    ``stack_id`` is None where ``.requires_grad`` was assigned, which is noticed only when the
    next backward begins.
    """

    tensor_id: int
    requires_grad: bool  # from now on


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextTensorKept(Event):
    """A custom Function keeps a tensor as an attribute of its ``ctx``: nothing frees it."""

    node_id: int
    slot: str  # "ctx.mask"
    tensor_id: int
    own_output: bool  # the node made it, so that each keeps the other alive


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionMarked(Event):
    """A custom Function's forward said of some tensors that they are written, or not followed."""

    function: str  # "MyFunction"
    mark: str  # "mark_dirty", "mark_non_differentiable"
    sequence_nr: int | None  # of the Function's node
    tensor_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRaised(Event):
    """An exception left the recorded block; ``stack_id`` is its traceback."""

    type_name: str  # "torch.utils.checkpoint.CheckpointError"
    message: str
    node_id: int | None  # the node that was running
    backward_id: int | None


EVENT_TYPES: Final[tuple[type[Event], ...]] = (
    RecordingStarted,
    RecordingEnded,
    RecorderFailed,
    RecorderLimited,
    StepEnded,
    FrameSeen,
    StackSeen,
    SourceLineRead,
    CellSeen,
    TensorSeen,
    ModuleSeen,
    ParameterSeen,
    OpCalled,
    NodeSeen,
    TensorSaved,
    SlotSeen,
    TensorUnpacked,
    TensorReleased,
    VersionBumped,
    MutationCloned,
    BackwardStarted,
    BackwardEnded,
    NodeStarted,
    NodeFinished,
    GradAccumulated,
    NormRead,
    NotFiniteSeen,
    HookRegistered,
    HookRan,
    RegionEntered,
    RegionExited,
    RecomputeStarted,
    RecomputeStopped,
    PolicyDecided,
    OpServed,
    HooksDisabled,
    ModuleEntered,
    ModuleExited,
    StateChanged,
    ModeChanged,
    RequiresGradChanged,
    ContextTensorKept,
    ErrorRaised,
    RegionCutOff,
    EffectRepeated,
    RandomDrawn,
    FunctionMarked,
    TensorMoved,
    HooksEntered,
    HooksLeft,
    PackedWritten,
    VersionRestored,
)


def _names(kind: type[Event]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


_FIELD_NAMES: Final[dict[type[Event], tuple[str, ...]]] = {
    Event: _names(Event),
    **{kind: _names(kind) for kind in EVENT_TYPES},
}


def field_names(kind: type[Event]) -> tuple[str, ...]:
    """Return the names of an event's fields, in the order of its rows."""
    return _FIELD_NAMES[kind]
