"""Frozen records that ``Analysis`` builds from events: tensors, ops, nodes, regions, spans.

Ids are those of the events. ``seq`` fields are event numbers: they define an order and identify
the event in the log. Times are nanoseconds since the start of the recording.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from autogradviz.event_log.stacks import (  # noqa: TC001 - also a name of this module
    SourceLocation as SourceLocation,  # noqa: PLC0414
)

if TYPE_CHECKING:
    from autogradviz.events import HookKind, Outcome, PackedBy, Phase

RunState: TypeAlias = Literal["not_run", "ran", "failed"]
HistoryKind: TypeAlias = Literal["saved", "written", "unpacked", "cloned", "released"]
PairStatus: TypeAlias = Literal[
    "same", "changed", "other_input", "added", "removed", "replaced", "not_rerun", "cached"
]
SpanKind: TypeAlias = Literal[
    "forward", "backward", "recompute", "module", "node", "optimizer", "mode", "hook", "toggle",
    "random", "buffer", "compile", "device",
]  # fmt: skip
"""Kind of a span. Of "device" are module calls and nodes, while a stream ran them. Three are events
without duration: a change of ``requires_grad``, a random draw and a write to a buffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor: a view of a storage."""

    tensor_id: int
    storage_id: int | None
    shape: tuple[int, ...]
    dtype: str
    device: str
    nbytes: int
    storage_nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One ``nn.Module`` instance."""

    module_id: int
    parent_module_id: int | None
    name: str  # "h.0.attn", "" for the root
    type_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operator call."""

    seq: int
    time_ns: int
    thread: int
    duration_ns: int
    name: str  # "addmm"
    overload: str  # "aten.addmm.default"
    phase: Phase  # as recorded: ops of optimizers are "forward"; see analysis/phases_of_ops.py
    inputs: tuple[Tensor, ...]
    input_versions: tuple[int, ...]
    outputs: tuple[Tensor, ...]
    written: tuple[Tensor, ...]
    input_hashes: tuple[int, ...]  # of contents; empty unless fingerprints were recorded
    output_hashes: tuple[int, ...]
    sequence_nr: int | None
    node_id: int | None  # the node that the op created, if the recorder saw it
    backward_node_id: int | None  # the node whose backward called the op
    module: str  # qualified name of the innermost module, "" for the root or none
    region_id: int | None
    recompute_id: int | None
    failed: bool
    location: SourceLocation | None  # innermost line of user code
    stack_id: int | None
    policy: str = ""  # decision of selective checkpointing, "must_save"
    cached: bool = False  # selective checkpointing returned a cached result; the op did not run


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpack:
    """One unpack of a saved tensor."""

    seq: int
    backward_id: int | None
    version: int | None  # when saved
    seen_version: int | None  # when unpacked
    failed: bool
    saved_hash: int | None = None  # of the content; None unless fingerprints were recorded
    seen_hash: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SavedTensor:
    """One tensor saved for backward, in one slot of one node.

    Attributes:
        saved_id: id of the saved tensor.
        node_id: the node that saved it, if known.
        slot: name of the slot, "self" or "result".
        tensor: shape, dtype, device and size in bytes.
        version: its version counter when it was saved.
        packed_by: "default", or the saved-tensor hooks that packed it.
        region_id: the checkpoint region in whose forward it was saved.
        recompute_id: the recomputation in which it was saved.
        position: index among the saves of its region or recomputation, from 0.
        saved_seq: event number of the op that saved it, or of the event that first saw it.
        released_seq: event number of its release, None if it was not released.
        unpacks: its unpacks, oldest first.
        op: the op that saved it.
        location: the line that saved it.
        saved_ns: time of the save, in nanoseconds since the start of the recording.
        released_ns: time of the release in the same unit; None for saves of a recomputation.
        cloned: whether ``allow_mutation_on_saved_tensors`` returned a clone of it.
        copied: whether hooks kept a copy of it in its place, or what computes it again.

    Example:
        >>> saved = trace.saved_tensors()[-1]
        >>> saved.slot, saved.tensor.shape, saved.tensor.nbytes
        ('result', (2, 8), 64)
        >>> saved.broken
        False
    """

    saved_id: int
    node_id: int | None
    slot: str | None
    tensor: Tensor
    version: int | None
    packed_by: PackedBy
    region_id: int | None
    recompute_id: int | None
    position: int | None
    saved_seq: int
    released_seq: int | None
    unpacks: tuple[Unpack, ...]
    op: Op | None
    location: SourceLocation | None
    saved_ns: int | None = None
    released_ns: int | None = None
    cloned: bool = False
    copied: bool = False

    def __repr__(self) -> str:
        version = "" if self.version is None else f", version {self.version}"
        place = "" if self.location is None else f", {self.location}"
        tensor = f"{self.tensor.dtype}{list(self.tensor.shape)}"
        size = f"{self.tensor.nbytes:,} B"
        return f"<SavedTensor {self.slot or '?'}: {tensor}{version}, {size}{place}>"

    @property
    def is_argument(self) -> bool:
        """True for an argument that a checkpoint region keeps for its recomputation."""
        return self.packed_by == "checkpoint" and self.position is None

    @property
    def is_held_in_place(self) -> bool:
        """True if it keeps its storage alive.

        Tensors that checkpointing packed do not, except arguments of a region, nor do those that
        hooks copied.
        """
        elsewhere = self.packed_by == "checkpoint" and not self.is_argument
        return not elsewhere and not self.copied and self.tensor.storage_id is not None

    @property
    def broken(self) -> bool:
        """True if backward found a different version than was saved."""
        return self.changed_version is not None

    @property
    def changed_version(self) -> int | None:
        """The version at the first unpack that differs from the saved one, else None."""
        for unpack in () if self.cloned else self.unpacks:
            known = unpack.version is not None and unpack.seen_version is not None
            if known and unpack.version != unpack.seen_version:
                return unpack.seen_version
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One leaf of the graph: a parameter, or an input that requires a gradient."""

    name: str  # "h.0.attn.c_attn.weight"; "" for an unnamed leaf
    tensor: Tensor
    accumulated: bool  # backward accumulated a gradient into it
    norm: float | None = None  # L2 norm of its final gradient; None if not recorded
    finite: bool = True  # False if that gradient contains NaN or infinities


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One gradient edge, from node ``source`` (nearer the loss) to node ``target``."""

    source: int
    target: int
    output: int  # index into the source's ``next_functions``
    input: int  # index of the target's input


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One autograd node."""

    node_id: int
    name: str  # "AddmmBackward0"
    sequence_nr: int | None
    thread: int
    op: Op | None  # the forward op that created it
    module: str  # qualified name
    location: SourceLocation | None
    parameter: Parameter | None  # for AccumulateGrad
    saved: tuple[SavedTensor, ...]
    region_id: int | None  # the checkpoint region it was created in
    state: RunState
    runs: int  # number of completed runs
    duration_ns: int  # sum of all runs, also of one that failed, without compilations
    order: int  # creation order in the whole graph, unique
    ran: tuple[tuple[int, int | None], ...] = ()  # start and end of each run; None without an end


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One hook that a user registered for backward."""

    hook_id: int
    kind: HookKind
    name: str  # qualified, "Trainer.clip"
    tensor_id: int | None  # the tensor or parameter that it is registered on
    module: str  # the module that it is registered on
    early: bool  # registered before the recording
    location: SourceLocation | None  # the line that registered it
    node_ids: tuple[int, ...]  # the nodes it ran on; else the node of its tensor
    runs: int
    changed: int  # number of runs that returned a different gradient
    failed: bool
    duration_ns: int  # sum of all runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The autograd graph: all nodes of all steps in the recording."""

    nodes: dict[int, Node]
    edges: tuple[Edge, ...]
    roots: tuple[int, ...]  # roots of the recorded backwards, then nodes without users


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One event in the history of a storage."""

    seq: int
    time_ns: int
    kind: HistoryKind
    version: int | None = None  # after the event
    op: str = ""  # the op or node responsible, "" if unknown
    saved_id: int | None = None
    ok: bool = True  # False if an unpack failed or found a different version than was saved
    location: SourceLocation | None = None
    nbytes: int = 0  # size of a clone


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorHistory:
    """The recorded history of one storage.

    Attributes:
        storage_id: id of the storage.
        nbytes: its size in bytes.
        tensors: the views of the storage.
        entries: saves, writes, unpacks, clones and the release, oldest first.

    Example:
        >>> history = trace.storage_histories()[0]
        >>> [entry.kind for entry in history.entries]
        ['saved', ...]
    """

    storage_id: int
    nbytes: int
    tensors: tuple[Tensor, ...]
    entries: tuple[HistoryEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpPair:
    """One aligned row of a forward and its recomputation."""

    status: PairStatus
    forward: Op | None
    recompute: Op | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputation:
    """One recomputation of a checkpoint region, aligned with the forward op by op.

    Attributes:
        recompute_id: id of the recomputation.
        region_id: the region that is recomputed.
        backward_id: the backward in which it ran.
        node_id: the node whose unpack started it.
        exec_group: number of the ``GraphExecGroup`` in which it ran.
        outcome: how it ended; None if its end was not recorded.
        started_seq: event number of the start.
        stopped_seq: event number of the end.
        duration_ns: duration in nanoseconds.
        ops: its ops, oldest first.
        saved: the tensors that it saved, by position.
        pairs: forward and recomputed ops side by side.
        first_difference: index into ``pairs`` of the first difference, None without one.

    Example:
        >>> [region] = trace.checkpoints()
        >>> [run] = region.recomputations
        >>> run.first_difference is None
        True
    """

    recompute_id: int
    region_id: int | None
    backward_id: int | None
    node_id: int | None
    exec_group: int | None
    outcome: Outcome | None
    started_seq: int
    stopped_seq: int | None
    duration_ns: int
    ops: tuple[Op, ...]
    saved: tuple[SavedTensor, ...]
    pairs: tuple[OpPair, ...]
    first_difference: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """One checkpoint region: one call of ``torch.utils.checkpoint.checkpoint``.

    Attributes:
        region_id: id of the region.
        parent_region_id: the enclosing region, None if it is the outermost.
        module: qualified name of the module that called ``checkpoint``.
        function: name of the checkpointed function.
        reentrant: the option ``use_reentrant``.
        early_stop: whether its recomputation stops after the last tensor that is needed.
        preserve_rng: the option ``preserve_rng_state``.
        debug: the option ``debug``.
        determinism_check: the option of that name, "default" or "none".
        failed: whether its forward raised.
        location: the line that called ``checkpoint``.
        entered_seq: event number of the start.
        exited_seq: event number of the end.
        duration_ns: duration of the forward in nanoseconds.
        ops: the ops of the forward, including nested regions.
        saved: the saved tensors that it discards, by position.
        recomputations: its recomputations, oldest first.

    Example:
        >>> [region] = trace.checkpoints()
        >>> [op.name for op in region.ops]
        ['t', 'addmm', 'tanh']
    """

    region_id: int
    parent_region_id: int | None
    module: str
    function: str
    reentrant: bool
    early_stop: bool
    preserve_rng: bool
    debug: bool
    determinism_check: str
    failed: bool
    location: SourceLocation | None
    entered_seq: int
    exited_seq: int | None
    duration_ns: int
    ops: tuple[Op, ...]
    saved: tuple[SavedTensor, ...]
    recomputations: tuple[Recomputation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One interval or event on the timeline."""

    kind: SpanKind
    label: str
    start_ns: int
    end_ns: int
    depth: int  # nesting within its kind and thread
    thread: int  # for the kind "device", the number of the lane
    ref: int | None  # node, region, backward or module id
    location: SourceLocation | None = None  # the line that started it
    lane: str = ""  # for the kind "device": "cuda:0", "cuda:0 stream 3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The spans of a recording, ordered by kind, thread and start."""

    spans: tuple[Span, ...]
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """One interval in which saved tensors keep a storage alive."""

    storage_id: int
    nbytes: int
    saved_id: int  # the saved tensor that started the interval
    start_ns: int
    end_ns: int | None  # None if the storage was still held at the end
    start_seq: int  # event number of the start
    end_seq: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCurve:
    """Bytes of storage kept alive for backward, over time; each storage is counted once."""

    seqs: tuple[int, ...]
    times_ns: tuple[int, ...]
    nbytes: tuple[int, ...]  # after the event at the same index
    holds: tuple[Hold, ...] = ()  # the intervals that add up to the curve, in order of start

    @property
    def peak(self) -> int:
        """Index of the highest point, -1 for an empty curve.

        Of equal ones the last: a first step may contain warm-up.
        """
        return max(reversed(range(len(self.nbytes))), key=self.nbytes.__getitem__, default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisedError:
    """The exception that left the recorded block."""

    seq: int
    type_name: str
    message: str
    node_id: int | None
    backward_id: int | None
    location: SourceLocation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A failure or a deliberate limit that the recorder reported."""

    hook_point: str  # the hook point, "file" for problems of the trace file
    message: str
    failure: bool  # False for a limit
