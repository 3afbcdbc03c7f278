"""Pairs of saved-tensor hooks that were entered, left or disabled."""

from __future__ import annotations

from dataclasses import dataclass

from autogradviz.events.base import Event, PackedBy
from autogradviz.events.field_types import (
    HookPairId,
    event,
)


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
