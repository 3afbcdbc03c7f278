"""The events of a file: checked when it is opened, made into rows kind by kind when asked for."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from autogradviz.events import EVENT_TYPES, field_names
from autogradviz.log.columns import find_runs, to_rows
from autogradviz.log.log import Log
from autogradviz.log.messages import read_messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.events import Event
    from autogradviz.log.columns import Run
    from autogradviz.log.log import Row

_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, MemoryError)
"""What Arrow raises, or we do, where a file holds what no recording writes."""


class _Batch(NamedTuple):
    start: int
    end: int
    runs: list[Run]


class StoredEvents:
    """The batches of a file that read well, in its own compressed form."""

    def __init__(self, content: bytes) -> None:
        """Check every batch of a stream; ``problem`` says where that ended, if too early."""
        self._content = content
        self._head = b""  # the description of the columns
        self._batches: list[_Batch] = []
        self.count = 0
        self.problem: str | None = None
        try:
            self._check()
        except UNREADABLE as error:
            reason = " ".join(str(error).split())[:200]
            self.problem = f"the file is cut off or damaged after {self.count:,} events ({reason})"

    def _check(self) -> None:
        messages = read_messages(self._content)
        first = next(messages)
        self._head = self._content[: first.end]
        for message in messages:
            piece = self._content[message.start : message.end]
            for batch in self._open(piece, None):
                runs = list(find_runs(batch))
                self._batches.append(_Batch(message.start, message.end, runs))
                self.count += len(batch)

    def _open(self, messages: bytes, columns: Sequence[str] | None) -> pa.RecordBatchStreamReader:
        options = pa.ipc.IpcReadOptions(use_threads=False)
        if columns is not None:
            names = pa.ipc.read_schema(pa.py_buffer(self._head)).names
            options.included_fields = [i for i, name in enumerate(names) if name in columns]
        source = pa.py_buffer(b"".join((self._head, messages, _END)))
        return pa.ipc.open_stream(source, options=options)

    def rows(self, kind: type[Event]) -> list[Row]:
        """Return the rows of a kind, oldest first; only its own columns are read."""
        found: list[Row] = []
        with _collector_paused():
            for start, end, runs in self._batches:
                own = [run for run in runs if run.kind is kind]
                if own:
                    for batch in self._open(self._content[start:end], field_names(kind)):
                        for run in own:
                            found += to_rows(batch, run)
        found.sort(key=itemgetter(0))  # several threads may have written out of turn
        return found

    def tables(self, kind: type[Event]) -> Iterator[pa.RecordBatch]:
        """Yield the columns of a kind batch by batch, without making objects of them."""
        for start, end, runs in self._batches:
            own = [run for run in runs if run.kind is kind]
            if own:
                for batch in self._open(self._content[start:end], field_names(kind)):
                    for run in own:
                        yield batch.slice(run.start, run.length)

    def log(self) -> Log:
        """Return a log of the events."""
        kinds = {run.kind for batch in self._batches for run in batch.runs}
        log = Log.of_stored(self.rows, kinds & set(EVENT_TYPES), self.count)
        log.problem = self.problem
        return log


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep the garbage collector from walking a million new rows again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
