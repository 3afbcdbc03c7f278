"""Checkpoint regions and recomputations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from autogradviz.events.base import Event
from autogradviz.events.field_types import (
    BackwardId,
    CallId,
    ExecGroupId,
    ModuleId,
    NodeId,
    OpSeq,
    RecomputeId,
    RegionId,
    event,
)

Outcome: TypeAlias = Literal["completed", "early_stop", "error"]
"""How a recomputation ended."""

CutOff: TypeAlias = Literal["arguments", "results"]
"""A tensor that a reentrant region hides from autograd."""


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
class PolicyRead(Event):
    """The policy of a selective checkpoint region was read, before its first decision."""

    region_id: RegionId | None
    function: str  # the policy, "save_matmuls"
    policy_ops: tuple[
        str, ...
    ]  # it names "aten.mm.default", "aten.mm" (all overloads), "'aten.mm'"
    decomposed_ops: tuple[str, ...]  # of these, what PyTorch decomposes before a policy sees it
    respects_hooks: bool  # what it keeps passes saved-tensor hooks around the region


@event()
@dataclass(frozen=True, slots=True, kw_only=True)
class OpServed(Event):
    """Selective checkpointing returned a cached output in a recomputation; the op did not run."""

    op: str
    region_id: RegionId | None
    recompute_id: RecomputeId | None
    op_seq: OpSeq | None  # the op of the forward whose output is used
