"""The base class of all events, and values that events of several subjects hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from autogradviz.events.field_types import StackId  # noqa: TC001 - read by get_type_hints

PackedBy: TypeAlias = Literal[
    "pytorch", "checkpoint", "recompute", "allow_mutation", "offload", "user"
]
"""The keeper of a saved tensor: PyTorch itself, or the innermost pair of saved-tensor hooks."""

NO_ID: Final = -1
"""Stands for "none" in a tuple of ids: an absent gradient, an edge that leads nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One fact: its number, time, thread and Python stack."""

    seq: int  # position in the recording, counted over all threads
    time_ns: int  # since the start of the recording, without the work of the recorder
    thread: int  # 0 = the thread that started the recording
    stack_id: StackId | None  # the Python stack that caused it, None where unknown
