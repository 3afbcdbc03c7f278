"""Traces on disk: an Arrow IPC stream, zstd-compressed, that pandas and polars read as it is.

Events are written chunk by chunk in the order of their numbers, so that what can be read of a
torn file is a recording that stops early. Nothing in a file is ever run.
"""

from __future__ import annotations

import gc
import os
import secrets
from bisect import bisect_left
from contextlib import contextmanager
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa

import autogradviz
from autogradviz.errors import NotATraceError
from autogradviz.events import EVENT_TYPES, RecordingEnded, field_names
from autogradviz.log.columns import schema, to_batch, to_rows
from autogradviz.log.log import Log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.events import Event
    from autogradviz.log.log import Row

FORMAT: Final = b"autogradviz-trace"

FORMAT_VERSION: Final = 1
"""What a file's columns mean.

1: the first.
"""

CHUNK: Final = 16_384
"""Events a batch: a batch costs about 10 kB however few it holds, and a torn file loses one."""

PathLike: TypeAlias = str | os.PathLike[str]


def save(log: Log, path: PathLike) -> None:
    """Write a log to a file, which appears whole or not at all.

    Lone surrogates in text, which no file format for text can hold, are spelled out.
    """
    target = Path(path)
    metadata = {
        b"format": FORMAT,
        b"format_version": str(FORMAT_VERSION).encode(),
        b"autogradviz_version": autogradviz.__version__.encode(),
    }
    partial = target.with_name(f".{secrets.token_hex(8)}.agv-partial")
    try:
        with partial.open("xb") as file:
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            described = schema().with_metadata(metadata)
            with pa.ipc.new_stream(file, described, options=options) as stream:
                for pieces in _chunks(log):
                    stream.write_batch(to_batch(pieces))
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _chunks(log: Log) -> Iterator[list[tuple[type[Event], list[Row]]]]:
    """Yield the rows of about ``CHUNK`` successive events at a time, by kind."""
    seqs = sorted(chain.from_iterable(map(itemgetter(0), log.rows(kind)) for kind in EVENT_TYPES))
    starts = dict.fromkeys(EVENT_TYPES, 0)
    for first in range(0, len(seqs), CHUNK):
        pieces = []
        for kind, start in starts.items():
            rows = log.rows(kind)
            is_last = first + CHUNK >= len(seqs)
            stop = (
                len(rows)
                if is_last
                else bisect_left(rows, seqs[first + CHUNK], lo=start, key=itemgetter(0))
            )
            pieces.append((kind, rows[start:stop]))
            starts[kind] = stop
        if any(rows for _, rows in pieces):
            yield pieces


def load(path: PathLike) -> Log:
    """Read a log from a file.

    Returns:
        The log. Of a torn or damaged file it holds what could be read, and ``log.problem``
        says what is missing.

    Raises:
        NotATraceError: if the file is no trace, or one from a newer autogradviz.
        FileNotFoundError: if there is no file.
    """
    path = Path(path)
    if path.is_dir():
        message = f"{path} is a folder, not a trace."
        raise NotATraceError(message)
    stream = _open(path)
    log = Log()
    with _collector_paused():
        problem = _read(stream, log)
    log.problem = problem or _find_missing(log)
    return log


def _open(path: Path) -> pa.RecordBatchStreamReader:
    content = path.read_bytes()
    try:
        stream = pa.ipc.open_stream(pa.py_buffer(content))
        metadata = stream.schema.metadata or {}
    except (pa.ArrowException, OSError, ValueError):
        metadata = {}
    if metadata.get(b"format") != FORMAT:
        what = "is empty" if not content else "is not an autogradviz trace"
        message = f"{path} {what}. Traces are written by trace.save()."
        raise NotATraceError(message)
    version = metadata.get(b"format_version", b"")
    if not version.isdigit() or int(version) > FORMAT_VERSION:
        writer = metadata.get(b"autogradviz_version", b"?").decode("utf-8", "replace")
        message = (
            f"{path} was written by autogradviz {writer}, in a newer format than this "
            f"autogradviz ({autogradviz.__version__}) reads. Upgrade autogradviz."
        )
        raise NotATraceError(message)
    if not stream.schema.equals(schema()):
        message = f"{path} is damaged: its columns are not those of a trace."
        raise NotATraceError(message)
    return stream


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


def _read(stream: pa.RecordBatchStreamReader, log: Log) -> str | None:
    """Add to the log what can be read; return what went wrong, in one line."""
    try:
        for batch in stream:
            for kind, rows in list(to_rows(batch)):
                log.extend_rows(kind, rows)
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        reason = " ".join(str(error).split())[:200]
        return f"the file is cut off or damaged after {len(log):,} events ({reason})"
    return None


def _find_missing(log: Log) -> str | None:
    """Return what a file that reads well still lacks, in one line."""
    ends = log.rows(RecordingEnded)
    if not ends:
        return f"the recording has no end: it stops after {len(log):,} events"
    expected = ends[-1][field_names(RecordingEnded).index("event_count")] + 1
    if expected != len(log):
        return f"{len(log):,} of {expected:,} events could be read"
    return None
