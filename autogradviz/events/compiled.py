"""Graphs that `torch.compile` captured, its plans, and runs of compiled regions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from autogradviz.events.base import Event
from autogradviz.events.field_types import (
    CompiledRegionId,
    FilePath,
    NodeId,
    SourceText,
    TensorId,
    ValueText,
    event,
)

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
