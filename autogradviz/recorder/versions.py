"""The version seam: what is known of each storage's version counter.

Ops tell of their writes themselves. Here are the two that pass them by: ``increment_version``,
and a counter found higher than anybody was seen raising it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from autogradviz.events import NO_ID, VersionBumped
from autogradviz.recorder.dynamo import transparent
from autogradviz.recorder.tensors import version_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.recorder.recorder import Recorder


class VersionTable:
    """The highest version seen of every storage, and when each was reached."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._known: dict[int, int] = {}
        self._reached: dict[int, list[tuple[int, int]]] = {}  # storage → [(event, version)]

    def seen(self, tensor_ids: Sequence[int], versions: Sequence[int]) -> None:
        """Compare counters just read with what is known; tell of a rise nobody was seen making."""
        storage_of = self._recorder.tensors.storage_id
        for tensor_id, version in zip(tensor_ids, versions, strict=True):
            storage_id = storage_of(tensor_id)
            if storage_id is None or version == NO_ID:
                continue
            known = self._known.get(storage_id)
            if known is None:
                self._known[storage_id] = version
                self._reached[storage_id] = [(0, version)]
            elif version > known:
                self.bumped(tensor_id, version)
                self._recorder.emit(VersionBumped, tensor_id, storage_id, known, version, "", None)

    def bumped(self, tensor_id: int, version: int) -> None:
        """Note that a tensor's counter now stands at a version."""
        storage_id = self._recorder.tensors.storage_id(tensor_id)
        if storage_id is not None and version > self._known.get(storage_id, NO_ID):
            self._known[storage_id] = version
            reached = self._reached.setdefault(storage_id, [])
            reached.append((self._recorder.event_count, version))

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
        return found


@contextmanager
def observe_increments(recorder: Recorder) -> Iterator[None]:
    """Record ``torch.autograd.graph.increment_version`` while the context is open."""
    original = torch._C._increment_version  # noqa: SLF001

    @transparent
    def increment(tensors: Any) -> None:
        listed = list(tensors)
        original(listed)
        recorder.guarded("increment_version", _record, recorder, listed)

    torch._C._increment_version = increment  # noqa: SLF001
    try:
        yield
    finally:
        torch._C._increment_version = original  # noqa: SLF001


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
