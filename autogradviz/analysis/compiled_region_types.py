"""Frozen records of the regions that ``torch.compile`` made, their ops and their saved slots.

Sizes are planned ones: where a size is symbolic, that of the call for which the region was
compiled. The runs of a region have the sizes that occurred.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.analysis.types import SourceLocation, Tensor
    from autogradviz.events import CacheDecision, RecomputeCause, RegionSource, SlotKind


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledOp:
    """One op of a graph of a compiled region.

    Attributes:
        name: unique in its graph, "addmm_1".
        target: the operator, "aten.addmm.default".
        position: index in its graph, which also has inputs and an output.
        shape: planned sizes, -1 where unknown; empty for several tensors.
        symbolic_shape: the sizes as text, "[s0, 4]"; "" if all are constant.
        dtype: "float32"; "" if it is no tensor.
        nbytes: size of all its tensors.
        location: the user's line that it comes from; None if unknown.
        library: whether that line is part of a library.
        module: qualified name of the innermost module, "" if unknown.
        module_type: the class of that module.
        arguments: names of the ops and inputs whose values it takes.
        forward_op: for an op of the backward, the forward op that it differentiates or repeats.
        policy: decision of checkpointing, "MUST_SAVE"; "" without one.
        checkpoint: number of the checkpointed region inside the compiled one, else None.
        cause: why the backward computes it again; None if it is no recomputed op.
        sums_gradients: whether it adds gradients, in which case its line is a neighbor's.

    Example:
        >>> step = torch.compile(lambda x: x.sin().sum(), backend="aot_eager")
        >>> with autogradviz.record() as compiled:
        ...     step(torch.ones(3, requires_grad=True)).backward()
        >>> [region] = compiled.compiled_regions()
        >>> op = region.forward_ops[0]
        >>> op.target, op.shape, op.nbytes
        ('aten.sin.default', (3,), 12)
    """

    name: str
    target: str
    position: int
    shape: tuple[int, ...]
    symbolic_shape: str
    dtype: str
    nbytes: int
    location: SourceLocation | None
    library: bool
    module: str
    module_type: str
    arguments: tuple[str, ...]
    forward_op: CompiledOp | None
    policy: str
    checkpoint: int | None
    cause: RecomputeCause | None
    sums_gradients: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRun:
    """The content of one saved slot in one run of its region.

    Attributes:
        node_id: the node of the run.
        seq: event number of the run.
        tensor: the saved tensor; None for a size.
        version: its version counter when it was saved, None if unknown.
        nbytes: its size in bytes, 0 for a size.
    """

    node_id: int
    seq: int
    tensor: Tensor | None
    version: int | None
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledSlot:
    """A value that the forward of a compiled region saves for its backward.

    Attributes:
        name: the op or input of the forward graph, "addmm".
        kind: "value" for a computed tensor, "input" for an input, "size" for a symbolic number.
        position: index among the slots.
        shape: planned sizes, -1 where unknown.
        symbolic_shape: the sizes as text, "[s0, 4]", or the symbolic number.
        dtype: "float32"; "" if unknown.
        nbytes: planned size in bytes.
        location: the user's line that computed it, or first used the input; None if unknown.
        source: for an input, its name in the program, "L['x']"; "" if unknown.
        reason: one sentence: what needs the value, and why it is not computed again.
        remedy: what would make the backward compute it again instead; "" if unknown.
        op: the op that computed it; None for an input or a size.
        needed_by: the ops of the backward that take it.
        blocking_op: the forward op that may not run again to recompute it; None without one.
        blocked_because: why that op may not run again, as PyTorch says it.
        donated: whether the backward may overwrite it.
        runs: its content in each run of the region, oldest first.
    """

    name: str
    kind: SlotKind
    position: int
    shape: tuple[int, ...]
    symbolic_shape: str
    dtype: str
    nbytes: int
    location: SourceLocation | None
    source: str
    reason: str
    remedy: str
    op: CompiledOp | None
    needed_by: tuple[CompiledOp, ...]
    blocking_op: CompiledOp | None
    blocked_because: str
    donated: bool
    runs: tuple[SlotRun, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledHook:
    """A pair of saved-tensor hooks for one slot, which AOTAutograd inlined or left out.

    Attributes:
        slot: the value that the hooks take.
        inlined: whether the hooks apply to this slot.
        reason: why they do not, "" if they do.
        pack: the ops of the pack hook.
        unpack: the ops of the unpack hook.
        nbytes_before: size of the value in bytes.
        nbytes_after: size of what is saved instead.
    """

    slot: str
    inlined: bool
    reason: str
    pack: tuple[str, ...]
    unpack: tuple[str, ...]
    nbytes_before: int
    nbytes_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphBreak:
    """A place where Dynamo ended a graph and Python continued.

    Attributes:
        seq: event number of the graph that ended.
        compile_id: PyTorch's name of the compilation.
        reason: one line.
        details: all that PyTorch says, with hints.
        location: the user's line; None if unknown.
        calls: file and line of the calls that led to it, outermost first, with the line itself.
    """

    seq: int
    compile_id: str
    reason: str
    details: str
    location: SourceLocation | None
    calls: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompile:
    """A guard that failed, so that a function was compiled again.

    Attributes:
        seq: event number.
        compile_id: PyTorch's name of the new compilation.
        failed_compile_id: the compilation whose guard failed, "" if unknown.
        guard: the guard, "self.scale == 0.5".
        guard_line: the source that the guard comes from, "" if unknown.
        function: the function that was compiled.
        location: the line that the guard comes from, or the first line of the function; None if
            unknown.
        count: how often it had been compiled before.
        limit: it runs eagerly from this number on.
    """

    seq: int
    compile_id: str
    failed_compile_id: str
    guard: str
    guard_line: str
    function: str
    location: SourceLocation | None
    count: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionRun:
    """One run of the forward of a compiled region.

    Attributes:
        seq: event number.
        node_id: the autograd node of the run.
        tensors: the saved tensors, in the order of the slots without sizes.
        versions: their version counters when they were saved, None where unknown.
        nbytes: size of these tensors in bytes.
        location: the line that called the compiled function.
        early: whether it ran before it could be observed; its versions may be newer then.
    """

    seq: int
    node_id: int
    tensors: tuple[Tensor, ...]
    versions: tuple[int | None, ...]
    nbytes: int
    location: SourceLocation | None
    early: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledRegion:
    """One region that AOTAutograd compiled: a graph, or a forward and a backward graph.

    Attributes:
        region_id: id of the region.
        name: the function with PyTorch's name of the compilation, "forward [0/1]".
        backend: "inductor", "aot_eager"; "" if unknown.
        compile_id: PyTorch's name of the compilation: frame and count, "0/1".
        aot_number: PyTorch's number of the region.
        source: "objects" if its graphs were read while it was compiled, "cache" if they come from
            PyTorch's cache, "found" if it was compiled before the recording, "log" if it was
            imported from a log of PyTorch.
        missing: what could not be read.
        memory_budget: the option ``activation_memory_budget`` of the partitioner, None if unknown.
        policies: number of calls of checkpoint in it that have a ``context_fn``.
        differentiable: whether it has a backward.
        location: where its graph ended in the user's code; None if unknown.
        compiled_by: the line that called the function when it was compiled; None if unknown.
        graph_breaks: the breaks that ended its graph.
        recompiles: the guards whose failure led to this region.
        cache: the decision of AOTAutograd's cache, None if it was not asked.
        cache_reason: why the region cannot be cached, "" if it can.
        forward_ops: ops of the forward graph, or of the only graph.
        backward_ops: ops of the backward graph, including recomputed ones.
        saved: what the forward saves for the backward.
        recomputed: the ops among ``backward_ops`` that repeat the forward.
        hooks: saved-tensor hooks that were inlined, and the slots that they left out.
        runs: the runs of its forward, oldest first.
        read_joint_ops: reads ``joint_ops``, which few readers need.

    Example:
        >>> step = torch.compile(lambda x: x.sin().sum(), backend="aot_eager")
        >>> with autogradviz.record() as compiled:
        ...     step(torch.rand(3, requires_grad=True)).backward()
        >>> [region] = compiled.compiled_regions()
        >>> [op.target for op in region.forward_ops]
        ['aten.sin.default', 'aten.sum.default']
        >>> [(slot.kind, slot.nbytes) for slot in region.saved]
        [('input', 12)]
    """

    region_id: int
    name: str
    backend: str
    compile_id: str
    aot_number: int
    source: RegionSource
    missing: tuple[str, ...]
    differentiable: bool
    location: SourceLocation | None
    compiled_by: SourceLocation | None
    graph_breaks: tuple[GraphBreak, ...]
    recompiles: tuple[Recompile, ...]
    cache: CacheDecision | None
    cache_reason: str
    forward_ops: tuple[CompiledOp, ...]
    backward_ops: tuple[CompiledOp, ...]
    saved: tuple[CompiledSlot, ...]
    recomputed: tuple[CompiledOp, ...]
    hooks: tuple[CompiledHook, ...]
    runs: tuple[RegionRun, ...]
    read_joint_ops: Callable[[], tuple[CompiledOp, ...]] = field(repr=False, compare=False)
    memory_budget: float | None = None
    policies: int = 0

    @property
    def joint_ops(self) -> tuple[CompiledOp, ...]:
        """Ops of the joint graph, before it was partitioned; empty if unknown."""
        return self.read_joint_ops()

    @property
    def planned(self) -> bool:
        """Whether the graphs are only a plan: inductor fuses their ops into kernels."""
        return self.backend == "inductor"

    @property
    def saved_nbytes(self) -> int:
        """Planned size of all saved values in bytes."""
        return sum(slot.nbytes for slot in self.saved)

    @property
    def computed_nbytes(self) -> int:
        """Planned size of the saved values that it computed: its inputs are alive anyway."""
        return sum(slot.nbytes for slot in self.saved if slot.kind != "input")
