"""Events as C++ wrote them, decoded to rows when their kind is read; a segment of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from autogradviz.event_log.encode_stream import to_batches
from autogradviz.event_log.referenced_definitions import DEFINED_TARGETS, USES
from autogradviz.event_log.uncompressed_rows import Rows
from autogradviz.events import (
    EVENT_TYPES,
    ArgumentsSeen,
    CollectiveCalled,
    DeviceCopied,
    DistributedTensorSeen,
    Event,
    FrameSeen,
    GradAccumulated,
    ModuleEntered,
    ModuleExited,
    MutationCloned,
    NodeFinished,
    NodeSeen,
    NodeStarted,
    NotFiniteSeen,
    OpCalled,
    OutputNormRead,
    RandomDrawn,
    SlotSeen,
    StackSeen,
    StreamUsed,
    StridesSeen,
    TensorReleased,
    TensorSaved,
    TensorSeen,
    TensorUnpacked,
    VersionBumped,
    VersionRestored,
)
from autogradviz.support.pause_gc import collector_waiting

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from collections.abc import Set as AbstractSet

    from autogradviz.event_log.encode_stream import Encoder
    from autogradviz.event_log.uncompressed_rows import Columns
    from autogradviz.events.field_types import Target
    from autogradviz.recorder.native.extension_types import Batch

KINDS: Final[tuple[type[Event], ...]] = (
    TensorSeen, OpCalled, VersionBumped, VersionRestored, StackSeen, FrameSeen, RandomDrawn,
    MutationCloned, NodeSeen, TensorSaved, TensorUnpacked, TensorReleased, SlotSeen,
    NodeStarted, NodeFinished, GradAccumulated, ModuleEntered, ModuleExited, NotFiniteSeen,
    CollectiveCalled, DistributedTensorSeen, OutputNormRead, ArgumentsSeen, StridesSeen,
    DeviceCopied, StreamUsed,
)  # fmt: skip
"""The kinds of events that C++ emits, in the order of its enumeration."""

_NUMBERS: Final = {kind: number for number, kind in enumerate(KINDS)}
_REFERENCES: Final = tuple(
    (number, used.place, DEFINED_TARGETS.index(used.target))
    for kind, number in _NUMBERS.items()
    for used in USES[kind]
    if used.target in DEFINED_TARGETS
)
_CODEC: Final = pa.Codec("zstd", 1)
_COMPRESSED: Final = 2**18
"""Bytes from which on events are compressed."""


class UndecodedRows:
    """Events that C++ emitted, but frames: those are described while their code lives."""

    def __init__(self, batch: Batch) -> None:
        """Take a batch of events."""
        self._batch = batch
        counts = dict(zip(KINDS, batch.counts(), strict=True))
        self.counts = {
            kind: count for kind, count in counts.items() if count and kind is not FrameSeen
        }
        self._nbytes = batch.nbytes()
        self._compressed: bytes | None = None

    def compress(self) -> None:
        """Compress the events, if they are many."""
        if self._nbytes >= _COMPRESSED:
            self._compressed = _CODEC.compress(self._batch.pack(), asbytes=True)

    def take(self, kinds: Collection[type[Event]]) -> list[tuple[type[Event], list[Any]]]:
        """Return the values of all rows of some kinds, which the segment then lacks."""
        found = list(self.values(kinds))
        for kind, _ in found:
            del self.counts[kind]
        return found

    def values(self, kinds: Collection[type[Event]]) -> Iterator[tuple[type[Event], list[Any]]]:
        """Yield the values of all rows of some kinds, one row after the other."""
        found = [kind for kind in self.counts if kind in kinds]
        if self._compressed is not None:
            self._batch.unpack(_CODEC.decompress(self._compressed, self._nbytes, asbytes=True))
        with collector_waiting():
            decoded = self._batch.decode([_NUMBERS[kind] for kind in found])
        if self._compressed is not None:
            self._batch.pack()
        return zip(found, decoded, strict=True)

    def used_ids(self) -> dict[Target, set[int]]:
        """Return the ids of definitions that the events refer to. They are not compressed."""
        found = self._batch.references(_REFERENCES, len(DEFINED_TARGETS))
        return dict(zip(DEFINED_TARGETS, found, strict=True))

    def only(self, kind: type[Event]) -> UndecodedRows:
        """Return the events of one kind. They are not compressed."""
        return UndecodedRows(self._batch.only(_NUMBERS[kind]))

    def decode_defined(self, kind: type[Event], ids: AbstractSet[int]) -> list[Any]:
        """Return the values of the definitions of some ids, one row after the other.

        They are not compressed.
        """
        return self._batch.decode_defined(_NUMBERS[kind], ids)

    def columns(self, kinds: Collection[type[Event]]) -> Iterator[tuple[type[Event], Columns]]:
        """Yield the columns of some kinds."""
        for kind, values in self.values(kinds):
            yield kind, Rows(kind, values).columns()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all events as columns."""
        found = {kind: Rows(kind) for kind in EVENT_TYPES}
        for kind, values in self.values(self.counts):
            found[kind] = Rows(kind, values)
            found[kind].sort()
        yield from to_batches(found)

    def messages(self, encoder: Encoder) -> Iterator[bytes]:
        """Yield all events as messages of a file."""
        return map(encoder.encode, self.batches())


def frames_of(batch: Batch) -> list[Any]:
    """Return the values of the frames in a batch, one after the other."""
    return batch.decode([_NUMBERS[FrameSeen]])[0]
