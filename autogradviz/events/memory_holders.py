"""The tensors that were alive, and the objects that kept memory alive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from autogradviz.events.base import Event
from autogradviz.events.field_types import (
    EventSeq,
    FilePath,
    SourceText,
    TensorId,
    event,
)

HeldAs: TypeAlias = Literal["parameter", "gradient", "optimizer state", "other"]
"""The kind of a live tensor, as Python objects show it; saved tensors are among "other"."""


@event(in_every_module=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHeld(Event):
    """These tensors were alive: one for each storage, on any device.

    They are read when an allocation fails. With ``record(memory=True)``, they are also read when
    the recording begins and ends; gradients after each backward, and the state of an optimizer
    after its step.
    """

    failure_seq: EventSeq | None  # the ``OutOfMemory``, None without one
    held_as: HeldAs
    tensor_ids: tuple[TensorId, ...]


@event(in_every_module=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHoldersRead(Event):
    """The recorder looked for what keeps memory alive; ``stack_id`` is the line that ran.

    With ``record(memory=True)``: when the recording ends, and before a backward when more memory
    than ever has outlived earlier ones, the 1st, 3rd, 7th, 15th time and so on that it grows. It is
    also done when an allocation fails.
    """

    reading: int  # from 0
    failure_seq: EventSeq | None  # the ``OutOfMemory``, None without one
    held_nbytes: int  # of all live storages but those of parameters, gradients and optimizers
    is_complete: bool  # else time was over, and no holder is known


@event(in_every_module=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHolderFound(Event):
    """If nothing referred to this object any more, so much memory would be free."""

    reading: int  # the ``MemoryHoldersRead``
    owner_root: SourceText  # "global history of module __main__"
    owner_path: SourceText  # from the root to the object: "list of 4"
    type_name: str  # of the object: "list"
    entries: int | None  # of the object, if it is a container
    count: int  # objects alike, as the cycles that several steps leave
    also_root: SourceText  # another root that leads to the memory; "" if there is none
    filename: FilePath  # of the function or class that is last on the path; "" if it is unknown
    lineno: int  # of the function; 0 if it is unknown
    nbytes: int
    tensor_ids: tuple[TensorId, ...]  # one for each storage
