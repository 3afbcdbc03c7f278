"""What a recording means: plain, frozen facts built from events.

Everything here is data; ``autogradviz.analysis.Model`` makes it. Ids are those of the events.
``seq`` fields are event numbers: they order things and lead back to the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from autogradviz.events import HookKind, Outcome, PackedBy, Phase

RunState: TypeAlias = Literal["not_run", "ran", "failed"]
HistoryKind: TypeAlias = Literal["saved", "written", "unpacked", "cloned", "released"]
PairStatus: TypeAlias = Literal["same", "changed", "added", "removed", "not_rerun", "cached"]
SpanKind: TypeAlias = Literal[
    "forward", "backward", "recompute", "module", "node", "optimizer", "mode", "hook", "toggle",
    "random", "buffer",
]  # fmt: skip
"""What a bar is. The last three are moments: a leaf told whether it requires a gradient, random
numbers drawn, a buffer written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLocation:
    """One line of somebody's source."""

    filename: str
    lineno: int
    function: str
    text: str
    cell: int | None = None  # of a notebook

    @property
    def place(self) -> str:
        """The file's name, or "In [3]" of a notebook's cell."""
        return self.filename if self.cell is None else f"In [{self.cell}]"

    def __str__(self) -> str:
        if self.cell is None:
            return f"{self.filename}:{self.lineno}"
        return f"{self.place}, line {self.lineno}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One window on one storage."""

    tensor_id: int
    storage_id: int | None
    shape: tuple[int, ...]
    dtype: str
    device: str
    nbytes: int
    storage_nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One ``nn.Module`` object."""

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
    phase: Phase
    inputs: tuple[Tensor, ...]
    input_versions: tuple[int, ...]
    outputs: tuple[Tensor, ...]
    written: tuple[Tensor, ...]
    input_hashes: tuple[int, ...]  # of contents; empty unless fingerprints were recorded
    output_hashes: tuple[int, ...]
    sequence_nr: int | None
    node_id: int | None  # the node that the op created, once one was seen
    backward_node_id: int | None  # the node whose backward called it
    module: str  # qualified name of the innermost module, "" for the root or none
    region_id: int | None
    recompute_id: int | None
    failed: bool
    location: SourceLocation | None  # innermost frame of the user's own code
    stack_id: int | None
    policy: str = ""  # what selective checkpointing decided, "must_save"
    cached: bool = False  # answered from what the policy kept: it did not run


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpack:
    """One time that a saved tensor was taken back."""

    seq: int
    backward_id: int | None
    version: int | None  # when saved
    seen_version: int | None  # when taken back
    failed: bool
    saved_hash: int | None = None  # of the content, if fingerprints were recorded
    seen_hash: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTensor:
    """One slot of one node."""

    saved_id: int
    node_id: int | None
    slot: str | None
    tensor: Tensor
    version: int | None
    packed_by: PackedBy
    region_id: int | None
    recompute_id: int | None
    position: int | None  # nth save of its region or recomputation
    saved_seq: int  # the op that saved it, or the look that found it
    released_seq: int | None
    unpacks: tuple[Unpack, ...]
    op: Op | None  # the op that saved it
    location: SourceLocation | None
    saved_ns: int | None = None
    released_ns: int | None = None  # None of what a recomputation saved: nobody saw that
    cloned: bool = False  # ``allow_mutation_on_saved_tensors`` handed back a clone of it

    @property
    def is_argument(self) -> bool:
        """Whether a checkpoint region keeps it to run again, rather than a node."""
        return self.packed_by == "checkpoint" and self.position is None

    @property
    def broken(self) -> bool:
        """Whether backward found another version than was saved."""
        if self.cloned:
            return False
        for unpack in self.unpacks:
            known = unpack.version is not None and unpack.seen_version is not None
            if known and unpack.version != unpack.seen_version:
                return True
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One leaf that gradients reach: a parameter, a buffer, or an input that requires grad."""

    name: str  # "h.0.attn.c_attn.weight"; "" for an unnamed leaf
    tensor: Tensor
    accumulated: bool  # a gradient reached it
    norm: float | None = None  # of the gradient it was left with, L2; None where not read
    finite: bool = True  # False: that gradient holds NaN or infinities


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One way for a gradient, from ``source`` (nearer the loss) to ``target``."""

    source: int
    target: int
    output: int  # which of the source's next functions
    input: int  # which input of the target


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
    runs: int  # how often it ran
    duration_ns: int  # of all runs together
    order: int  # creation order over the whole graph, unique
    ran: tuple[tuple[int, int | None], ...] = ()  # start and end of each run; None: it never ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One function that backward calls."""

    hook_id: int
    kind: HookKind
    name: str  # qualified, "Trainer.clip"
    tensor_id: int | None  # the tensor or parameter that it hangs on
    module: str  # the module that it hangs on
    early: bool  # registered before the recording
    location: SourceLocation | None  # where it was registered
    node_ids: tuple[int, ...]  # where it ran; else the node of its tensor
    runs: int
    changed: int  # how often it returned another gradient
    failed: bool
    duration_ns: int  # of all runs together


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The autograd graph: all nodes of all generations."""

    nodes: dict[int, Node]
    edges: tuple[Edge, ...]
    roots: tuple[int, ...]  # where backward began, or would begin


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One thing that happened to a storage."""

    seq: int
    time_ns: int
    kind: HistoryKind
    version: int | None  # after it
    op: str  # what did it, "" where nothing named did
    saved_id: int | None
    ok: bool  # False: unpacked at another version than saved, or the unpack failed
    location: SourceLocation | None
    nbytes: int = 0  # that a clone takes


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorHistory:
    """Everything seen of one storage, oldest first."""

    storage_id: int
    nbytes: int
    tensors: tuple[Tensor, ...]  # the windows on it
    entries: tuple[HistoryEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpPair:
    """One row of forward against recomputation."""

    status: PairStatus
    forward: Op | None
    recompute: Op | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputation:
    """One second run of a region, aligned with the first op by op."""

    recompute_id: int
    region_id: int | None
    backward_id: int | None
    node_id: int | None  # who asked for it
    exec_group: int | None  # the ``GraphExecGroup`` that it ran in
    outcome: Outcome | None  # None: it never stopped (torn trace)
    started_seq: int
    stopped_seq: int | None
    duration_ns: int
    ops: tuple[Op, ...]
    saved: tuple[SavedTensor, ...]
    pairs: tuple[OpPair, ...]
    first_difference: int | None  # index into pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """One checkpointed region."""

    region_id: int
    parent_region_id: int | None
    module: str
    function: str
    reentrant: bool
    early_stop: bool
    preserve_rng: bool  # torch's random state is restored for the recomputation
    debug: bool
    determinism_check: str  # "default", "none"
    failed: bool
    location: SourceLocation | None  # who called checkpoint
    entered_seq: int
    exited_seq: int | None
    duration_ns: int
    ops: tuple[Op, ...]  # of its own forward, nested regions' included
    saved: tuple[SavedTensor, ...]  # in order: index = "position"
    recomputations: tuple[Recomputation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One bar of the timeline."""

    kind: SpanKind
    label: str
    start_ns: int
    end_ns: int
    depth: int  # nesting within its kind and thread
    thread: int
    ref: int | None  # node, region, backward or module id
    location: SourceLocation | None = None  # the line that began it


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """When what ran."""

    spans: tuple[Span, ...]
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """One stretch of time in which backward keeps a storage."""

    storage_id: int
    nbytes: int
    saved_id: int  # the saved tensor that began it
    start_ns: int
    end_ns: int | None  # None: it is kept to the end


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCurve:
    """Bytes of storage that backward keeps, over time; a storage counts once."""

    seqs: tuple[int, ...]
    times_ns: tuple[int, ...]
    nbytes: tuple[int, ...]  # after the event at the same index
    holds: tuple[Hold, ...] = ()  # what adds up to the curve, in the order in which they began

    @property
    def peak(self) -> int:
        """Return the index of the highest point, -1 of an empty curve."""
        return max(range(len(self.nbytes)), key=self.nbytes.__getitem__, default=-1)


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
    """Something the recorder has to say about itself."""

    seam: str
    message: str
    failure: bool  # False: it stopped looking on purpose
