"""Module calls, Python state, modes and custom Functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from autogradviz.events.base import Event
from autogradviz.events.field_types import (
    CallId,
    ModuleId,
    NodeId,
    ObjectId,
    RecomputeId,
    RegionId,
    TensorId,
    ValueNumber,
    ValueText,
    event,
)

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


def path_text(path: tuple[str, ...]) -> str:
    """Return a state's path as in source: "self.cache['k'].x"."""
    steps = (step if step.startswith("[") else f".{step}" for step in path)
    return "".join(steps).removeprefix(".")
