"""Hooks on tensors, nodes and modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from autogradviz.events.base import Event
from autogradviz.events.field_types import BackwardId, HookId, ModuleId, NodeId, TensorId, event

HookKind: TypeAlias = Literal[
    "tensor", "retain_grad", "post_accumulate_grad", "multi_grad", "node", "node_pre", "node_post",
    "module_backward_pre", "module_backward",
]  # fmt: skip
"""The object that a hook is registered on. ``node``: pre-hooks are recognized when they run."""


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
