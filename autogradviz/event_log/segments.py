"""What of a log is not rows: parts, made into rows kind by kind when somebody asks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from autogradviz.gc_control import collector_paused

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    import pyarrow as pa

    from autogradviz.event_log.arrow_stream import Encoder
    from autogradviz.event_log.rows import Row
    from autogradviz.events import Event


class Part(Protocol):
    """A batch of a file, or sealed rows of a recording."""

    @property
    def counts(self) -> Mapping[type[Event], int]:
        """How many events of each kind it holds."""

    def rows(self, kinds: Collection[type[Event]]) -> Iterable[tuple[type[Event], list[Row]]]:
        """Return the rows of each of some kinds that is here."""

    def whole(self) -> Iterable[pa.RecordBatch]:
        """Return all as columns."""

    def messages(self, encoder: Encoder) -> Iterable[bytes | memoryview]:
        """Return all as it stands in a file."""


class Parts:
    """All parts of a log, oldest first."""

    def __init__(self, parts: Iterable[Part] = ()) -> None:
        self._parts: list[Part] = []
        self._counts: Counter[type[Event]] = Counter()
        for part in parts:
            self.add(part)

    def add(self, part: Part) -> None:
        """Append a part."""
        self._parts.append(part)
        self._counts.update(part.counts)

    def count(self, kind: type[Event]) -> int:
        """Return how many events of a kind there are."""
        return self._counts[kind]

    def __len__(self) -> int:
        return self._counts.total()

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def rows(self, kinds: Collection[type[Event]]) -> dict[type[Event], list[Row]]:
        """Return the rows of some kinds, part by part."""
        found: dict[type[Event], list[Row]] = {kind: [] for kind in kinds}
        with collector_paused():
            for part in self._parts:
                for kind, rows in part.rows(kinds):
                    found[kind] += rows
        return found
