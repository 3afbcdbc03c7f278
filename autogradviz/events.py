"""The events of a recording: the only schema of recordings and of trace files.

Events are facts in the past tense. They hold numbers and text but no tensors, so a trace keeps
nothing alive and opens without torch. A definition (``FrameSeen``, ``TensorSeen``, ``ModuleSeen``
…) comes before the first event that refers to it, so the readable part of a torn file can be
understood by itself.

Ids are small integers counted by the recorder, one counter for each kind of id, and never
``id()``. The type of a field says what it refers to (``TensorId``) and whether it quotes what
belongs to the user (``SourceText``); retention, the module filter and redaction derive from that.

Two fields of the same name have the same type in every event, because the file format has one
column for each name. To add an event, define it here; the decorator registers it.

Example:
    >>> [event] = trace.log.of(autogradviz.events.BackwardStarted)
    >>> event.create_graph
    False
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Literal, TypeAlias

from autogradviz.event_references_and_privacy import (
    BackwardId,
    CallId,
    CompiledRegionId,
    EventSeq,
    ExecGroupId,
    FilePath,
    FrameId,
    HookId,
    HookPairId,
    ModuleId,
    NodeId,
    ObjectId,
    OpSeq,
    RecomputeId,
    RegionId,
    SavedId,
    SourceText,
    StackId,
    StorageId,
    TensorId,
    ValueNumber,
    ValueText,
    event,
    registered,
)

Phase: TypeAlias = Literal["forward", "backward", "recompute"]
"""When an op ran. A recomputation inside a backward is ``recompute``."""

PackedBy: TypeAlias = Literal[
    "pytorch", "checkpoint", "recompute", "allow_mutation", "offload", "user"
]
"""The keeper of a saved tensor: PyTorch itself, or the innermost pair of saved-tensor hooks."""

Outcome: TypeAlias = Literal["completed", "early_stop", "error"]
"""How a recomputation ended."""

HookKind: TypeAlias = Literal[
    "tensor", "retain_grad", "post_accumulate_grad", "multi_grad", "node", "node_pre", "node_post",
    "module_backward_pre", "module_backward",
]  # fmt: skip
"""The object that a hook is registered on. ``node``: pre-hooks are recognized when they run."""

Place: TypeAlias = Literal["root", "gradient"]
"""The object that a norm belongs to: a root of a backward, or the ``.grad`` of a leaf."""

CutOff: TypeAlias = Literal["arguments", "results"]
"""A tensor that a reentrant region hides from autograd."""

Mode: TypeAlias = Literal["grad", "inference", "autocast", "autocast_cache"]
"""A thread-local flag of autograd: ``is_grad_enabled()``, ``is_inference_mode_enabled()`` …"""

StateKind: TypeAlias = Literal["object", "random", "context", "thread"]
"""Where state lives: in Python objects, a global generator, a mode or setting, or the thread."""

ValueKind: TypeAlias = Literal[
    "plain", "container", "tensor", "object", "array", "rng", "iterator", "cache", "hooks",
    "weak_reference", "mode",
]  # fmt: skip
"""The kind of a piece of state:

- ``plain``: a number, text, a flag, a dtype, an enumeration member, a class, a function.
- ``container``: a list, dict, set, queue or bytearray; its number is its length.
- ``tensor``: a tensor, with the identity of its memory and its version.
- ``object``: a module or another instance, with its identity.
- ``array``: a NumPy array of at most 1 MiB, compared by content.
- ``rng``: a random generator, compared by its state.
- ``iterator``: an iterator, generator or counter.
- ``cache``: a function of ``functools.lru_cache``; its number counts the cached results.
- ``hooks``: the hooks of one kind of a module; its number counts them.
- ``weak_reference``: a ``weakref.ref``.
- ``mode``: active modes, enabled backends, or another global setting of PyTorch.
"""

ChangeKind: TypeAlias = Literal[
    "added", "removed", "type", "value", "size", "content", "identity", "version", "requires_grad",
    "class", "died",
]  # fmt: skip
"""How two readings of a piece of state differ:

- ``added``, ``removed``: only the later, or only the earlier reading found it.
- ``type``: the readings are of different value kinds.
- ``size``: a container, cache or hook table has another number of items.
- ``content``: a container of the same length, or an array, holds other items.
- ``identity``: another object, which looks the same.
- ``version``: a tensor in the same memory, which was written.
- ``requires_grad``: only ``requires_grad`` differs.
- ``class``: the same object has another class.
- ``died``: the target of a weak reference died.
- ``value``: anything else.
"""

CompileTrigger: TypeAlias = Literal["dynamo", "backward", "compiled_autograd"]
"""The caller of a compiler: a frame, the first run of a compiled backward, compiled autograd."""

RegionSource: TypeAlias = Literal["objects", "cache", "found", "log"]
"""Origin of the graphs of a compiled region:

- ``objects``: from the graphs themselves, while they were compiled.
- ``cache``: from text that PyTorch keeps in its cache of compiled graphs.
- ``found``: from what remained of a region that was compiled before the recording.
- ``log``: from text that PyTorch wrote to a folder named by ``TORCH_TRACE``.
"""

CompiledGraph: TypeAlias = Literal["joint", "forward", "backward", "inference"]
"""A graph of AOTAutograd. The joint graph is partitioned into forward and backward."""

SlotKind: TypeAlias = Literal["value", "input", "size"]
"""Content of a saved slot: a computed tensor, an input of the region, or a symbolic number."""

RecomputeCause: TypeAlias = Literal["checkpoint", "policy", "partitioner"]
"""Why a compiled backward computes a forward op again:

- ``checkpoint``: the op is in a checkpointed region.
- ``policy``: a policy of selective checkpointing says so.
- ``partitioner``: the partitioner found it cheaper than to save its output.
"""

CacheDecision: TypeAlias = Literal["hit", "miss", "bypass"]
"""Whether AOTAutograd's cache had a region, did not have it, or cannot hold it."""

NO_ID: Final = -1
"""Stands for "none" in a tuple of ids: an absent gradient, an edge that leads nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fact: its number, time, thread and Python stack."""

    seq: int  # position in the recording, counted over all threads
    time_ns: int  # monotonic, 0 = start of the recording
    thread: int  # 0 = the thread that started the recording
    stack_id: StackId | None  # the Python stack that caused it, None where unknown


# --- the recording itself -------------------------------------------------------------------


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
class RankSeen(Event):
    """The recorded process is one rank of a distributed run."""

    rank: int  # from 0
    world_size: int
    local_rank: int | None  # on its host
    host: ValueText
    pid: int  # of the process
    run_name: str  # the same on all ranks of a run
    restart_count: int  # how often the launcher has restarted the run


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGroupSeen(Event):
    """The process is in a process group of ``torch.distributed``."""

    group_name: str
    group_description: str  # "default_pg", "mesh_dp"
    group_ranks: tuple[int, ...]  # global ranks, in the order of the ranks in the group


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class MeshSeen(Event):
    """The process has a place in a ``DeviceMesh``."""

    mesh_names: tuple[str, ...]  # of the dimensions: "dp", "tp"; empty if they have none
    mesh_shape: tuple[int, ...]
    mesh_coordinates: tuple[int, ...]


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallelSeen(Event):
    """The program trains a module in ``DistributedDataParallel``."""

    module_name: str  # qualified name of the wrapper
    find_unused_parameters: bool
    static_graph: bool
    bucket_cap_nbytes: int


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class GradientBucketSeen(Event):
    """``DistributedDataParallel`` reduces the gradients of some parameters together.

    It arranges them in the order in which gradients arrive, after its second step at the earliest.
    """

    module_name: str  # qualified name of the wrapper
    bucket: int  # in the order of their reduction, from 0
    bucket_nbytes: int
    bucket_parameters: tuple[str, ...]  # names below the wrapper, "module.head.weight"


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingEnded(Event):
    """A recording ended. A trace without this event is torn."""

    event_count: int  # events before this one


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
    """The recorder stopped observing something, to stay safe or small."""

    hook_point: str  # the part of the recorder
    message: str


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


# --- definitions ----------------------------------------------------------------------------


@event(defines=("frame_id",))
@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSeen(Event):
    """A line of a function appeared in a stack for the first time."""

    frame_id: FrameId
    filename: FilePath
    lineno: int  # from 1
    function: str  # qualified name, "Attention.forward"
    text: SourceText  # source line without indentation, "" where there is no source
    library: bool  # part of torch, the standard library or autogradviz


@event(defines=("stack_id",))
@dataclass(frozen=True, slots=True, kw_only=True)
class StackSeen(Event):
    """A Python stack occurred for the first time; ``stack_id`` is the id that is defined."""

    frame_ids: tuple[FrameId, ...]  # innermost first


@event(defines=("filename", "lineno"), private=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLineRead(Event):
    """A line of a user's source file, near a frame, was read."""

    filename: FilePath
    lineno: int  # from 1
    text: SourceText  # with indentation


@event(defines=("filename",))
@dataclass(frozen=True, slots=True, kw_only=True)
class CellSeen(Event):
    """A file name was identified as a notebook cell, compiled by IPython."""

    filename: FilePath
    cell: int  # execution count, 3 in "In [3]"


@event(defines=("tensor_id",))
@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSeen(Event):
    """A tensor was seen for the first time: a region of a storage with a shape and dtype.

    Tensor objects that view the same memory with the same shape and dtype share one id.
    """

    tensor_id: TensorId
    storage_id: StorageId | None  # None for sparse tensors, and where storages are not followed
    shape: tuple[int, ...]
    dtype: str  # "float32"
    device: str  # "cpu", "cuda:0"
    nbytes: int  # of the elements of this tensor
    storage_nbytes: int  # of the whole storage, 0 without a storage


@event(defines=("tensor_id",))
@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedTensorSeen(Event):
    """A tensor is a ``DTensor``; it is emitted after the ``TensorSeen`` with its global shape."""

    tensor_id: TensorId
    local_tensor_id: TensorId  # the part that this rank holds, with the local shape
    placements: tuple[str, ...]  # for each mesh dimension: "Shard(dim=0)", "Replicate()"
    mesh_names: tuple[str, ...]  # of the dimensions: "dp", "tp"; empty if they have none
    mesh_shape: tuple[int, ...]
    mesh_coordinates: tuple[int, ...]  # of this rank; empty if it is not in the mesh


@event(defines=("module_id",))
@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleSeen(Event):
    """An ``nn.Module`` was seen for the first time."""

    module_id: ModuleId
    parent_module_id: ModuleId | None
    module_name: str  # qualified from its root, "h.0.attn"; "" for the root itself
    type_name: str  # "CausalSelfAttention"


@event(defines=("module_id",))
@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSeen(Event):
    """A parameter or buffer was found under a name; a shared one has one event for each name."""

    tensor_id: TensorId
    module_id: ModuleId
    parameter_name: str  # qualified, "h.0.attn.c_attn.weight"
    buffer: bool
    requires_grad: bool


# --- ops ------------------------------------------------------------------------------------


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class OpCalled(Event):
    """An operator was called below autograd."""

    op: str  # "aten.addmm.default"
    phase: Phase
    inputs: tuple[TensorId, ...]  # in the order of the arguments
    input_versions: tuple[int, ...]  # before the op, NO_ID where unknown
    outputs: tuple[TensorId, ...]
    output_versions: tuple[int, ...]  # after the op, NO_ID where unknown
    written: tuple[TensorId, ...]  # tensors written in place
    input_hashes: tuple[int, ...]  # of the values before the op, empty without fingerprints
    output_hashes: tuple[int, ...]  # of the values after the op, NO_ID where unknown
    duration_ns: int
    sequence_nr: int | None  # of the autograd node created by the op on this thread
    node_id: NodeId | None  # the node whose backward called the op
    call_id: CallId | None  # innermost module call
    region_id: RegionId | None  # innermost checkpoint region, in forward and recomputation
    recompute_id: RecomputeId | None
    failed: bool  # the op raised


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCalled(Event):
    """A collective of ``torch.distributed``, or a send or receive, is about to run.

    The event precedes the ``OpCalled`` of the same op, so that a collective that never returns is
    in the trace.
    """

    op: str  # "c10d.allreduce_.default"
    group_name: str  # of its process group
    group_number: int | None  # among the group's, from 0; None for a send or receive
    tensor_ids: tuple[TensorId, ...]  # its tensor arguments
    is_async: bool | None  # the caller does not wait for it, None where unknown


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveWaited(Event):
    """The program has waited for a collective, or for a send or receive, with ``Work.wait()``.

    Those that are not asynchronous wait inside the call. Waits of C++ are not seen: those of
    ``DistributedDataParallel`` for its buckets, and waits of a device for another stream.
    """

    group_name: str  # of its process group
    group_number: int | None  # among the group's, from 0; None for a send or receive
    duration_ns: int  # of the wait, until the time of this event
    failed: bool  # the wait raised


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class WholeParameterSeen(Event):
    """``fully_shard`` has a leaf for the whole of a parameter, of which each rank keeps a part.

    Backward accumulates into this leaf. ``fully_shard`` adds the gradients of the ranks, and sets
    the ``.grad`` of the parameter to this rank's part.
    """

    tensor_id: TensorId  # the leaf
    sharded_tensor_id: TensorId  # the parameter, a ``DTensor``


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class ParametersUnsharded(Event):
    """``fully_shard`` has gathered the whole parameters of a module from all ranks."""

    module_id: ModuleId | None
    unsharded_parameters: tuple[str, ...]  # their names in the module that shards them
    unsharded_nbytes: int  # of the whole parameters
    region_id: RegionId | None  # innermost checkpoint region, in forward and recomputation
    recompute_id: RecomputeId | None


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class ParametersResharded(Event):
    """``fully_shard`` has freed the whole parameters of a module; each rank keeps its part."""

    module_id: ModuleId | None
    unsharded_nbytes: int  # of the whole parameters
    region_id: RegionId | None  # innermost checkpoint region, in forward and recomputation
    recompute_id: RecomputeId | None


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class RandomDrawn(Event):
    """An op drew from a random generator of PyTorch."""

    op: str  # "aten.bernoulli_.float"
    op_seq: OpSeq | None
    generator: str  # "default", or "given" for a generator passed by the caller
    device: str  # of the generator: "cpu", "cuda:0"


# --- the graph ------------------------------------------------------------------------------


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


# --- saved tensors --------------------------------------------------------------------------


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSaved(Event):
    """A node saved a tensor for backward.

    Default saves are read when the recorder walks the graph, which may be much later than the
    op: the save itself happened in the op with the same ``sequence_nr``. Saves through hooks are
    recorded at once, before their slot is known; ``SlotSeen`` follows.
    """

    saved_id: SavedId
    node_id: NodeId | None
    sequence_nr: int | None  # of the node that saved it
    slot: str | None  # "self", "result", "saved_tensors[0]"
    tensor_id: TensorId  # NO_ID where a user's pack hook returned no tensor
    version: int | None  # counter when saved, None where unknown
    packed_by: PackedBy
    region_id: RegionId | None
    recompute_id: RecomputeId | None
    position: int | None  # position among the saves of its region or recomputation, from 0


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class SlotSeen(Event):
    """The node and slot of an earlier ``TensorSaved`` that went through hooks became known."""

    saved_id: SavedId
    node_id: NodeId
    slot: str


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class TensorUnpacked(Event):
    """A node unpacked a saved tensor.

    The versions differ if the tensor was written in between. PyTorch raises then, except under
    saved-tensor hooks, which disable its check.
    """

    saved_id: SavedId
    node_id: NodeId | None
    version: int | None  # when saved
    seen_version: int | None  # when unpacked, None where only the hooks know
    failed: bool  # the unpack hook raised
    saved_hash: int | None  # of the values when saved, None without fingerprints
    seen_hash: int | None  # of the values passed to backward


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWritten(Event):
    """The result of a user's pack hook was written before the unpack hook ran."""

    saved_id: SavedId
    tensor_id: TensorId  # the result, or a tensor in it
    since_seq: EventSeq  # events with larger numbers happened after packing
    version: int | None  # of that tensor after packing
    seen_version: int | None  # before unpacking
    saved_hash: int | None  # of its values after packing, None without fingerprints
    seen_hash: int | None  # before unpacking


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMoved(Event):
    """``save_on_cpu`` copied a saved tensor to the CPU when packing, or back when unpacking.

    A tensor that is on the CPU already is not copied, except into pinned memory.
    """

    saved_id: SavedId
    device: str  # the destination
    nbytes: int
    pinned: bool  # the copy on the CPU is in pinned memory


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class SavedStorageFreed(Event):
    """The storage of a tensor that hooks packed had been freed when they unpacked it.

    The hooks of a user or of ``save_on_cpu`` kept a copy, or what computes the tensor again.
    """

    saved_id: SavedId


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class TensorReleased(Event):
    """A slot released its tensor: its node ran without ``retain_graph``, or was freed."""

    saved_id: SavedId


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class VersionBumped(Event):
    """The version counter of a tensor increased: the tensor was written."""

    tensor_id: TensorId
    storage_id: StorageId | None
    version: int  # before
    seen_version: int  # after
    op: str  # "aten.add_.Tensor", "increment_version", or "" if the write was not observed
    op_seq: OpSeq | None


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRestored(Event):
    """PyTorch restored a version counter (``_unsafe_preserve_version_counter``).

    The writer asserts that the values that autograd saved are unchanged. Sharded modules do this
    when they gather a parameter again.
    """

    tensor_id: TensorId
    storage_id: StorageId | None
    version: int  # before; equal if no write was seen to move the counter
    seen_version: int  # after


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class MutationCloned(Event):
    """``allow_mutation_on_saved_tensors`` cloned a saved tensor before an in-place op."""

    tensor_id: TensorId  # the tensor about to be written
    storage_id: StorageId | None
    clone_id: TensorId  # the tensor that backward will use
    op_seq: OpSeq | None  # the clone


# --- backward -------------------------------------------------------------------------------


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


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStarted(Event):
    """A node was about to run."""

    backward_id: BackwardId
    node_id: NodeId
    inputs: tuple[TensorId, ...]  # incoming gradients, NO_ID for None; without ops, one id a shape


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


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class NoOptimizerFound(Event):
    """Parameters had received gradients, optimizers had stepped, and none had these parameters.

    Optimizers that have not stepped are searched for as well, when a backward begins or the
    recording ends, at most eight times.
    """

    tensor_ids: tuple[TensorId, ...]  # the parameters


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
    """The norm of a leaf was read at the end of the recording of one of several ranks."""

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


# --- hooks ----------------------------------------------------------------------------------


@event(defines=("hook_id",))
@dataclass(frozen=True, slots=True, kw_only=True)
class HookRegistered(Event):
    """A hook of the user that backward will call was registered."""

    hook_id: HookId
    hook_kind: HookKind
    hook_name: str  # qualified, "Trainer.clip"
    tensor_id: TensorId | None  # the tensor or parameter that it is registered on
    module_id: ModuleId | None
    early: bool  # registered before the recording, and found later


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardHookRegistered(Event):
    """A forward hook or pre-hook was registered on a module; its calls are not recorded."""

    module_id: ModuleId | None
    hook_name: str  # qualified


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class HookRan(Event):
    """Backward called a hook."""

    hook_id: HookId
    hook_kind: HookKind
    backward_id: BackwardId | None
    node_id: NodeId | None  # the node that was about to run, running, or just run
    changed: bool  # the hook returned another gradient
    failed: bool  # the hook raised
    duration_ns: int


# --- checkpoint -----------------------------------------------------------------------------


@event(in_every_module=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class RegionEntered(Event):
    """The forward of a checkpointed region started."""

    region_id: RegionId
    parent_region_id: RegionId | None
    call_id: CallId | None  # innermost module call
    reentrant: bool
    early_stop: bool
    preserve_rng: bool  # PyTorch's random state is restored for the recomputation
    debug: bool  # the ``debug`` argument: checkpoint logs the ops of both runs
    determinism_check: str  # what is compared of saved tensors: "default", "none"
    function: str  # the checkpointed function, "Block.forward"
    module_id: ModuleId | None  # the checkpointed module, if it is one


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class RegionExited(Event):
    """The forward of a checkpointed region ended."""

    region_id: RegionId
    failed: bool


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class RegionCutOff(Event):
    """The results of a reentrant region do not require grad although grad mode is enabled.

    ``cut_off`` is "arguments" if no tensor among the positional arguments requires grad, and
    "results" if every result tensor is inside a container.
    """

    region_id: RegionId
    cut_off: CutOff


@event(in_every_module=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeStarted(Event):
    """The recomputation of a region started."""

    recompute_id: RecomputeId
    region_id: RegionId | None
    backward_id: BackwardId | None
    node_id: NodeId | None  # the node that unpacked a saved tensor
    exec_group: ExecGroupId | None  # the ``GraphExecGroup`` that it runs in


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputeStopped(Event):
    """The recomputation of a region ended."""

    recompute_id: RecomputeId
    outcome: Outcome


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDecided(Event):
    """The policy of selective checkpointing decided about an op in the forward."""

    op: str
    decision: str  # member of ``CheckpointPolicy``: "must_save", "prefer_recompute"
    cached: bool  # the outputs are kept for the recomputation
    region_id: RegionId | None
    op_seq: OpSeq | None


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class OpServed(Event):
    """Selective checkpointing returned a cached output in a recomputation; the op did not run."""

    op: str
    region_id: RegionId | None
    recompute_id: RecomputeId | None
    op_seq: OpSeq | None  # the op of the forward whose output is used


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class HooksEntered(Event):
    """A pair of saved-tensor hooks became the innermost pair of its thread.

    The pairs of checkpoint itself are recorded as regions and recomputations instead.
    """

    pair_id: HookPairId
    packed_by: PackedBy  # "offload", "allow_mutation", "user"
    function: str  # the pack hook, "compress"; "save_on_cpu" and the like for PyTorch's own pairs


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class HooksLeft(Event):
    """A pair of saved-tensor hooks was popped; the tensors that it packed stay packed."""

    pair_id: HookPairId


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class HooksDisabled(Event):
    """Saved-tensor hooks were disabled; pushing a pair now raises with ``message``."""

    message: str


# --- state ----------------------------------------------------------------------------------


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleEntered(Event):
    """The forward of a module started."""

    call_id: CallId
    parent_call_id: CallId | None
    module_id: ModuleId
    sequence_nr: int  # of the next node on this thread: the first node of the call


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleExited(Event):
    """The forward of a module ended."""

    call_id: CallId
    sequence_nr: int  # of the next node on this thread: the first node after the call
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange(Event):
    """A difference between two readings of the state that a checkpointed region can access.

    ``state_path`` names the state: a variable, then attribute names, and items in brackets, as in
    ``("self", "cache", "['k']", "x")``. ``before`` and ``after`` are text for display.
    ``stack_id`` is the write, where it was observed (attributes of modules), else None.
    """

    region_id: RegionId
    recompute_id: RecomputeId | None
    state_kind: StateKind
    state_path: tuple[str, ...]
    value_kind: ValueKind  # before; after, if the state was added
    change_kind: ChangeKind
    before: ValueText  # "len 3", "float32 2×4 #12 v3", "absent"
    after: ValueText
    before_number: ValueNumber | None  # the value of a number, or a number of items
    after_number: ValueNumber | None
    before_id: ObjectId | None  # identity of an object, or of a tensor's memory
    after_id: ObjectId | None
    version: int | None  # of a tensor before
    seen_version: int | None  # of a tensor after
    requires_grad: bool | None  # of a tensor after
    before_names: tuple[ValueText, ...]  # of a mode: the active modes, or the enabled backends

    @property
    def state_name(self) -> str:
        """The path as in source: "self.cache['k'].x"."""
        return path_text(self.state_path)


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged(StateChange):
    """State that a checkpointed region can access differed when its recomputation started.

    Before: when the region's forward started. After: when the recomputation started.
    """

    in_forward: bool  # the region's own forward changed it


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRepeated(StateChange):
    """A region's forward changed state that outlives it, and so did its recomputation.

    Before: when the region's forward started. After: when the recomputation ended.
    """


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChanged(Event):
    """A thread-local mode of autograd was changed by the line of ``stack_id``.

    Modes that are not at their default when the recording starts are recorded without a line.
    """

    mode: Mode
    device_type: str | None  # "cpu", "cuda" for autocast
    before: str  # "on", "off"; for autocast the dtype, "bfloat16"
    after: str


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class RequiresGradChanged(Event):
    """The ``requires_grad`` of a leaf was set.

    ``stack_id`` is None where ``.requires_grad`` was assigned, which is found when the next
    backward starts.
    """

    tensor_id: TensorId
    requires_grad: bool  # from now on


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class ContextTensorKept(Event):
    """A custom Function kept a tensor as an attribute of its ``ctx``, where nothing frees it."""

    node_id: NodeId
    attribute: str  # "mask" of "ctx.mask"
    tensor_id: TensorId
    own_output: bool  # an output of the node itself: a reference cycle

    @property
    def slot(self) -> str:
        """The attribute as in source: "ctx.mask"."""
        return f"ctx.{self.attribute}"


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionMarked(Event):
    """The forward of a custom Function marked tensors as dirty or not differentiable."""

    function: str  # "MyFunction"
    mark: str  # "mark_dirty", "mark_non_differentiable"
    sequence_nr: int | None  # of the Function's node
    tensor_ids: tuple[TensorId, ...]


# --- torch.compile --------------------------------------------------------------------------


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class CompileStarted(Event):
    """A compiler started on this thread; ``stack_id`` is the user's line that caused it."""

    compile_id: str  # PyTorch's name, "2/1": the frame 2, compiled for the second time
    trigger: CompileTrigger


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class CompileEnded(Event):
    """A compiler returned or raised."""

    compile_id: str
    trigger: CompileTrigger


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledGraphCaptured(Event):
    """Dynamo captured a graph, or broke it before its first op.

    ``filename``, ``lineno`` and ``function`` are the user's line where the graph ended.
    """

    compile_id: str
    graph_name: str  # "__compiled_fn_1", "" without ops
    code_name: str  # the function that was compiled, "forward"
    code_file: FilePath
    op_count: int
    policy_count: int  # calls of checkpoint with a ``context_fn``
    graph_break: bool  # Python runs after the graph; False if the function returned
    reason: str  # why the graph ended
    filename: FilePath  # "" where unknown
    lineno: int  # from 1, 0 where unknown
    function: str
    text: SourceText  # source line without indentation
    caller_files: tuple[FilePath, ...]  # the calls that led to the line, outermost first
    caller_lines: tuple[int, ...]


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class Recompiled(Event):
    """Dynamo was to compile a function again, because a guard of an earlier compilation failed.

    ``filename``, ``lineno`` and ``function`` are the user's line that the guard comes from.
    """

    compile_id: str  # of the new compilation
    failed_compile_id: str  # of the compilation whose guard failed, "" where unknown
    guard: ValueText  # "L['self'].scale == 0.5"
    filename: FilePath  # "" where unknown
    lineno: int  # from 1, 0 where unknown
    function: str
    text: SourceText
    code_name: str
    code_file: FilePath
    code_line: int  # first line of the function, 0 where unknown
    recompile_count: int  # how often the function was compiled before
    recompile_limit: int  # Dynamo runs the function eagerly from this number on


@event(lasting=True, defines=("compiled_region_id",))
@dataclass(frozen=True, slots=True, kw_only=True)
class RegionCompiled(Event):
    """AOTAutograd made a compiled region: a graph, or a forward and a backward graph.

    Where the region was compiled before the recording, this is when it was found.
    """

    compiled_region_id: CompiledRegionId
    compile_id: str  # of the frame, "" where unknown
    aot_number: int  # PyTorch's number of the region
    backend: str  # "inductor", "" where unknown
    source: RegionSource
    differentiable: bool  # it has a backward graph
    missing: tuple[str, ...]  # what could not be read: "joint graph", "reasons"
    memory_budget: float | None  # ``activation_memory_budget`` of the partitioner, None if unknown


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class OpCompiled(Event):
    """An op, input or output of a graph of a compiled region, in the order of the graph.

    Sizes are the planned ones: where a size is symbolic, that of the first call.
    """

    compiled_region_id: CompiledRegionId
    graph: CompiledGraph
    position: int | None  # in the graph, from 0
    op_name: str  # unique in the graph, "addmm_1"
    op_kind: str  # "call_function", "placeholder", "get_attr", "output"
    target: str  # "aten.addmm.default"
    shape: tuple[int, ...]  # NO_ID where unknown; empty for several tensors
    symbolic_shape: str  # "[s0, 4]", "" if all sizes are constant
    dtype: str  # "float32", "" if it is no tensor
    nbytes: int  # of all its tensors
    filename: FilePath  # innermost user line that it comes from, "" where unknown
    lineno: int  # from 1, 0 where unknown
    function: str
    text: SourceText
    library: bool  # the line is not the user's
    source_name: str  # for an input, the variable that it is: "L['x']"; "" where unknown
    module_name: str  # qualified name, "up.0"
    module_type: str  # class of the module
    argument_names: tuple[str, ...]  # the ops whose outputs it takes
    forward_name: str  # for an op of the backward: the forward op that it differentiates
    policy: str  # of checkpointing: "MUST_SAVE", "PREFER_RECOMPUTE"; "" without
    checkpoint_number: int | None  # checkpointed region inside the compiled one
    sums_gradients: bool  # it adds gradients; its line is that of a neighbor


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPlanned(Event):
    """The forward of a compiled region saves a value for its backward, in each of its runs."""

    compiled_region_id: CompiledRegionId
    position: int | None  # among the slots, from 0
    op_name: str  # the value, an op or input of the forward graph
    slot_kind: SlotKind
    shape: tuple[int, ...]
    symbolic_shape: str
    dtype: str
    nbytes: int
    donated: bool  # the backward may overwrite it
    blocking_name: str  # forward op that may not run again to recompute the value, "" without
    blocked_because: str  # "not in the recomputable allowlist"


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputePlanned(Event):
    """The backward of a compiled region computes an op of the forward again."""

    compiled_region_id: CompiledRegionId
    op_name: str  # in the backward graph
    cause: RecomputeCause


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class HookInlined(Event):
    """AOTAutograd compiled a pair of saved-tensor hooks into a region, for one slot, or did not."""

    compiled_region_id: CompiledRegionId
    op_name: str  # the value that the hooks take
    inlined: bool
    reason: str  # why not, "" if it was inlined
    pack_targets: tuple[str, ...]  # ops of the pack hook, "prims.convert_element_type.default"
    unpack_targets: tuple[str, ...]
    nbytes: int  # of the value
    packed_nbytes: int  # of what is saved instead


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheDecided(Event):
    """AOTAutograd looked a region up in its cache."""

    compile_id: str
    cache: CacheDecision
    key: str  # "" for a bypass
    reason: str  # of a bypass


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class RegionRan(Event):
    """The forward of a compiled region ran and saved tensors for backward."""

    compiled_region_id: CompiledRegionId
    node_id: NodeId
    sequence_nr: int | None
    tensor_ids: tuple[TensorId, ...]  # saved tensors, in the order of the slots without sizes
    saved_versions: tuple[int, ...]  # of their version counters, NO_ID where unknown
    early: bool  # it ran before it could be observed; the versions are those when it was found


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudgetChanged(Event):
    """A compiled region is about to run, and ``activation_memory_budget`` has another value.

    It differs from the value at the last run, and at first from PyTorch's default. The partitioner
    reads the option when it compiles a region, so that running regions ignore it.
    """

    memory_budget: float


@event(lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class BackwardCaptured(Event):
    """Compiled autograd captured the graph of a whole backward."""

    compile_id: str
    graph_name: str
    op_count: int
    reason: str  # why no earlier compilation could be used, "" if there was none
    op_names: tuple[str, ...]  # "aot0_mm_1": an op of a compiled region's backward
    targets: tuple[str, ...]


@event(in_every_module=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRaised(Event):
    """An exception left the recorded block; ``stack_id`` is its traceback."""

    type_name: str  # "torch.utils.checkpoint.CheckpointError"
    message: str
    node_id: NodeId | None  # the node that was running
    backward_id: BackwardId | None


EVENT_TYPES: Final[tuple[type[Event], ...]] = registered()


_FIELD_NAMES: Final[dict[type[Event], tuple[str, ...]]] = {
    Event: tuple(field.name for field in fields(Event)),
    StateChange: tuple(field.name for field in fields(StateChange)),
    **{kind: tuple(field.name for field in fields(kind)) for kind in EVENT_TYPES},
}


def field_names(kind: type[Event]) -> tuple[str, ...]:
    """Return the names of an event's fields, in the order of its rows."""
    return _FIELD_NAMES[kind]


def path_text(path: tuple[str, ...]) -> str:
    """Return a state's path as in source: "self.cache['k'].x"."""
    steps = (step if step.startswith("[") else f".{step}" for step in path)
    return "".join(steps).removeprefix(".")
