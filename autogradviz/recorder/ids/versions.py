"""The version seam: what is known of each storage's version counter.

Ops tell of their writes themselves. Here are those that pass them by: ``increment_version``, a
counter found higher than anybody was seen raising it, and one that is set back.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from autogradviz.events import NO_ID, VersionBumped, VersionRestored
from autogradviz.recorder.ids.int_map import IntMap, grow
from autogradviz.recorder.ids.tensors import version_of
from autogradviz.recorder.torch_internals.dynamo import transparent
from autogradviz.recorder.torch_internals.patch import patched

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from autogradviz.recorder.recorder import Recorder

_NoFunctions = torch._C.DisableTorchFunction  # noqa: SLF001
_Preserve = torch.autograd.grad_mode._unsafe_preserve_version_counter  # noqa: SLF001
_increment_version = torch._C._increment_version  # noqa: SLF001 - ours, not a watched one

Written: TypeAlias = tuple[int, torch.Tensor, int]
"""What an op writes: number, tensor, and its version before."""


def bump_missed_foreach(written: Sequence[Written]) -> None:
    """Bump what a foreach write left at its version because a mode was watching."""
    for _, tensor, before in written:
        if before != NO_ID and tensor._version == before:  # noqa: SLF001
            _increment_version((tensor,))


class VersionTable:
    """The highest version seen of every storage, and when each was reached."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.known: array[int] | IntMap = array("q", [NO_ID])
        """The highest version seen, by storage number; never empty: NO_ID is a place too."""
        self._reached: dict[int, list[tuple[int, int]]] = {}
        """Of the storages whose counter moved: [(event, version)]."""

    def seen(self, tensor_id: int, storage_id: int, version: int) -> None:
        """Compare a counter just read with what is known; tell of a rise nobody was seen making."""
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
            self._recorder.emit(VersionBumped, tensor_id, storage_id, known, version, "", None)

    def _version(self, storage_id: int) -> int:
        grow(self.known, storage_id)
        return self.known[storage_id]

    def bumped(self, tensor_id: int, version: int) -> None:
        """Note that a tensor's counter now stands at a version."""
        storage_id = self._recorder.tensors.storage_id(tensor_id)
        if storage_id is None:
            return
        known = self._version(storage_id)
        if version > known:
            self._moved(storage_id, known, version)

    def _moved(self, storage_id: int, known: int, version: int) -> None:
        self.known[storage_id] = version
        reached = self._reached.setdefault(storage_id, [] if known == NO_ID else [(0, known)])
        reached.append((self._recorder.event_count, version))

    def restored(self, tensor_id: int, version: int) -> None:
        """Note that a tensor's counter was set back, and tell of it where it had moved."""
        storage_id = self._recorder.tensors.storage_id(tensor_id)
        if storage_id is None:
            return
        known = self._version(storage_id)
        if version < known:
            self._moved(storage_id, known, version)
            self._recorder.emit(VersionRestored, tensor_id, storage_id, known, version)

    def at(self, tensor_id: int, seq: int) -> int | None:
        """Return a tensor's version at the time of an event, None where it was never seen."""
        storage_id = self._recorder.tensors.storage_id(tensor_id)
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

    def forget(self, storages: AbstractSet[int], first_seq: int) -> None:
        """Keep what is known of the storages given, and when since an event it was reached."""
        self.known = IntMap((each, self._version(each)) for each in storages)
        self.forget_rises(storages, first_seq)

    def forget_rises(self, storages: AbstractSet[int], first_seq: int) -> None:
        """Keep when since an event versions of the storages given were reached."""
        for key in [key for key in self._reached if key not in storages]:
            del self._reached[key]
        for reached in self._reached.values():
            place = bisect_left(reached, (first_seq, 0))
            del reached[: max(place - 1, 0)]


@contextmanager
def observe_restores(recorder: Recorder) -> Iterator[None]:
    """Record counters that are set back while the context is open."""
    original = _Preserve.__exit__

    @transparent
    def leave(self: Any, *error: Any) -> None:
        original(self, *error)
        recorder.guarded("version", _tell_restored, recorder, self.tensors)

    with patched(_Preserve, __exit__=leave):
        yield


def _tell_restored(recorder: Recorder, tensors: Sequence[torch.Tensor]) -> None:
    with _NoFunctions():
        for tensor in tensors:
            version = version_of(tensor)
            if version != NO_ID:
                recorder.versions.restored(recorder.tensors.number(tensor), version)


@contextmanager
def observe_increments(recorder: Recorder) -> Iterator[None]:
    """Record ``torch.autograd.graph.increment_version`` while the context is open."""
    original = torch._C._increment_version  # noqa: SLF001

    @transparent
    def increment(tensors: Any) -> None:
        listed = list(tensors)
        original(listed)
        with _NoFunctions():
            recorder.guarded("increment_version", _record, recorder, listed)

    with patched(torch._C, _increment_version=increment):  # noqa: SLF001
        yield


def _record(recorder: Recorder, tensors: list[torch.Tensor]) -> None:
    stack_id = recorder.stacks.capture(3) if recorder.with_stacks else None
    for tensor in tensors:
        after = version_of(tensor)
        if after == NO_ID:
            continue
        tensor_id = recorder.tensors.number(tensor)
        recorder.versions.bumped(tensor_id, after)
        storage_id = recorder.tensors.storage_id(tensor_id)
        recorder.emit(
            VersionBumped, tensor_id, storage_id, after - 1, after, "increment_version", None,
            stack_id=stack_id,
        )  # fmt: skip
