"""Version counters of storages, as the dispatch mode sees them."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, TypeAlias

import torch

from autogradviz.events import NO_ID, VersionBumped, VersionRestored
from autogradviz.recorder.python_engine.int_map import IntMap, grow

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from autogradviz.recorder.python_engine.tensor_ids import TensorTable
    from autogradviz.recorder.session import Session

Written: TypeAlias = tuple[int, torch.Tensor, int]
"""A tensor that an op writes: its id, itself, and its version before."""


class VersionTable:
    """The highest version seen of every storage, and the event at which each was reached."""

    def __init__(self, session: Session, tensors: TensorTable) -> None:
        self._session = session
        self._tensors = tensors
        self.known: array[int] | IntMap = array("q", [NO_ID])
        """The highest version by storage id; never empty, since NO_ID is an index too."""
        self._reached: dict[int, list[tuple[int, int]]] = {}
        """By storage whose counter has changed: [(event, version)]."""

    def seen(self, tensor_id: int, storage_id: int, version: int) -> None:
        """Emit ``VersionBumped`` without an op if the counter exceeds the last known value."""
        if storage_id == NO_ID:
            return
        try:
            known = self.known[storage_id]
        except IndexError:
            known = self._version(storage_id)
        if version <= known:  # as NO_ID is
            return
        if known == NO_ID:
            self.known[storage_id] = version
        else:
            self.bumped(tensor_id, version)
            self._session.emit(VersionBumped, tensor_id, storage_id, known, version, "", None)

    def _version(self, storage_id: int) -> int:
        grow(self.known, storage_id)
        return self.known[storage_id]

    def bumped(self, tensor_id: int, version: int) -> None:
        """Remember that a tensor's counter has reached a version."""
        storage_id = self._tensors.storage_id(tensor_id)
        if storage_id is None:
            return
        known = self._version(storage_id)
        if version > known:
            self._changed(storage_id, known, version)

    def _changed(self, storage_id: int, known: int, version: int) -> None:
        self.known[storage_id] = version
        reached = self._reached.setdefault(storage_id, [] if known == NO_ID else [(0, known)])
        reached.append((self._session.event_count, version))

    def restored(self, tensor_id: int, version: int) -> None:
        """Emit ``VersionRestored``: PyTorch restored a tensor's counter.

        Some operators move no counter under a dispatch mode, so that a write may have happened
        although the counter is not set back.
        """
        storage_id = self._tensors.storage_id(tensor_id)
        if storage_id is None:
            return
        known = max(self._version(storage_id), version)
        if version < known:
            self._changed(storage_id, known, version)
        self._session.emit(VersionRestored, tensor_id, storage_id, known, version)

    def at(self, tensor_id: int, seq: int) -> int | None:
        """Return a tensor's version at the time of an event, None if it is unknown."""
        storage_id = self._tensors.storage_id(tensor_id)
        if storage_id is None:
            return None
        found = None
        for reached_seq, version in self._reached.get(storage_id, ()):
            if found is not None and reached_seq > seq:
                break
            found = version
        if found is not None:
            return found
        known = self._version(storage_id)
        return None if known == NO_ID else known

    def prune(self, storages: AbstractSet[int], first_seq: int) -> None:
        """Keep the versions of the storages given, and their history from an event on."""
        self.known = IntMap((each, self._version(each)) for each in storages)
        self.prune_history(storages, first_seq)

    def prune_history(self, storages: AbstractSet[int], first_seq: int) -> None:
        """Keep the history of the storages given from an event on."""
        for key in [key for key in self._reached.copy() if key not in storages]:
            del self._reached[key]
        for reached in self._reached.copy().values():
            place = bisect_left(reached, (first_seq, 0))
            del reached[: max(place - 1, 0)]
