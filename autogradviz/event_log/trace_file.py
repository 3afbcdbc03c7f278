"""Trace files: zstd-compressed Arrow IPC files, which pandas and Polars can read directly.

Reading a file never executes anything from it. Batches read from a file are saved unchanged.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from autogradviz._version import __version__
from autogradviz.errors import NotATraceError, OutputExistsError
from autogradviz.event_log import arrow_file_layout
from autogradviz.event_log.arrow_arrays import import_pandas
from autogradviz.event_log.arrow_file_layout import Batch, read_batches
from autogradviz.event_log.arrow_message_sizes import read_messages
from autogradviz.event_log.encode_arrow_stream import FORMAT, FORMAT_VERSION, to_batches
from autogradviz.event_log.log import Log, Segments
from autogradviz.event_log.overwrite_protection import (
    PathLike,
    check_not_exists,
    link_if_absent,
    temp_sibling,
)
from autogradviz.event_log.rank_summary import summarize, summary_footer
from autogradviz.event_log.rows_to_arrow import schema
from autogradviz.event_log.step_totals import step_totals
from autogradviz.event_log.uncompressed_rows import Rows
from autogradviz.events import EVENT_TYPES, Event, RankSeen, RecordingEnded, field_names
from autogradviz.support.rank_and_trace_paths import as_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.event_log.encode_arrow_stream import Encoder
    from autogradviz.event_log.log import Segment

_DAMAGED: Final = "the file is cut off or damaged"

_NOTHING: Final = "nothing is left"

UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, MemoryError)
"""The exceptions that reading a damaged file raises."""

COMMON: Final = ("kind", *field_names(Event))
"""Columns of every event, and so of every file."""

_MARK: Final = b"\xff\xff\xff\xff"
"""The first bytes of each message of an Arrow stream."""

SMALL: Final = 1_000
"""Events of a segment from which it is written as a message of its own."""

MANY: Final = 500_000
"""Number of events from which importing pandas makes saving faster, and totals are not computed."""


def save(log: Log, path: PathLike, *, overwrite: bool = False) -> None:
    """Write a log to a file atomically.

    Lone surrogates in text are escaped, because UTF-8 cannot encode them.

    Args:
        log: the events.
        path: the file to write.
        overwrite: replace any regular file, not only a trace.

    Raises:
        OutputExistsError: if another non-empty file exists.
    """
    target = as_path(path, "save() takes the path of a trace")
    if not (overwrite and target.is_file()):
        _check_replaces_trace(target)
    with temp_sibling(target) as partial:
        _write(log, partial)
        partial.replace(target)


def save_new(log: Log, path: PathLike) -> None:
    """Write a log to a new file.

    Raises:
        OutputExistsError: if anything but an empty file exists there.
    """
    target = Path(path)
    check_not_exists(target)
    with temp_sibling(target) as partial:
        _write(log, partial)
        link_if_absent(partial, target)


def to_bytes(log: Log) -> bytes:
    """Return the stream in the file of a log."""
    return b"".join(_stream(log))[len(arrow_file_layout.BEGIN) :]


def from_bytes(content: bytes) -> Log:
    """Return the log of which ``to_bytes`` returned the stream.

    Raises:
        NotATraceError: if it has another format version.
    """
    check_head(Path("the bytes of a trace"), content)
    return _read(content)


def _read(content: bytes) -> Log:
    """Return the log in the stream of a trace file, or its readable part."""
    stored, problem = _check(content)
    log = Log(Segments(stored))
    log.problem = problem or _find_missing(log)
    return log


def _write(log: Log, path: Path) -> None:
    with path.open("xb") as file:
        file.writelines(_stream(log))


def _stream(log: Log) -> Iterator[bytes | memoryview]:
    """Yield the pieces of a file."""
    writer = arrow_file_layout.Writer()
    yield writer.head
    if len(log) > MANY:
        import_pandas()
    yield from map(writer.add, _segment_messages(log, writer.encoder))
    for batch in to_batches(_recent(log)):
        yield writer.add(writer.encoder.encode(batch))
    summary = b""
    if log.rows(RankSeen):
        found = summarize(log)
        # Of a longer log, the rows of ops would take much memory.
        totals = step_totals(log) if len(log) <= MANY else None
        summary = summary_footer(replace(found, totals=totals))
    yield writer.end(summary)


def _segment_messages(log: Log, encoder: Encoder) -> Iterator[bytes | memoryview]:
    """Yield the messages of the segments; small ones of a recording are joined before.

    A flight recorder leaves one for each step that it dropped, with the definitions that are still
    used; a message of each would take most of the time and of the file.
    """
    small: list[Segment] = []
    for segment in log.segments:
        if isinstance(segment, Batch) or sum(segment.counts.values()) >= SMALL:
            yield from _joined_messages(small, encoder)
            small = []
            yield from segment.messages(encoder)
        else:
            small.append(segment)
    yield from _joined_messages(small, encoder)


def _joined_messages(segments: Sequence[Segment], encoder: Encoder) -> Iterator[bytes]:
    rows = {kind: Rows(kind) for kind in EVENT_TYPES}
    for kind, columns in Segments(segments).columns(EVENT_TYPES).items():
        rows[kind] = Rows(kind, list(chain.from_iterable(zip(*columns, strict=True))))
        rows[kind].sort()
    yield from map(encoder.encode, to_batches(rows))


def batches(log: Log) -> Iterator[pa.RecordBatch]:
    """Yield all events as batches of columns, in the order of their numbers."""
    older = chain.from_iterable(segment.batches() for segment in log.segments)
    return chain(older, to_batches(_recent(log)))


def _recent(log: Log) -> dict[type[Event], Rows]:
    return {kind: log.recent(kind) for kind in EVENT_TYPES}


def _check_replaces_trace(target: Path) -> None:
    """Check that the file is a trace, is empty or does not exist."""
    try:
        check_not_exists(target)
    except OutputExistsError as error:
        if target.is_dir() or not (target.is_file() and _is_trace(target)):
            message = f"{target} exists and is not a trace; name another file."
            raise OutputExistsError(message) from error


def _is_trace(path: Path) -> bool:
    with suppress(NotATraceError, OSError):
        read_content(path)
        return True
    return False


def is_complete_trace(path: Path) -> bool:
    """Return whether a file is a trace of this format that was written to its end.

    The file of a recording that still runs, or was killed, is not complete.
    """
    if not arrow_file_layout.is_arrow_file(path):
        return False
    with suppress(NotATraceError, OSError):
        check_beginning(path)
        return True
    return False


def load(path: PathLike) -> Log:
    """Read a log from a file.

    Returns:
        The log. For a torn or damaged file it has the readable part, and ``log.problem`` says
        what is missing. The whole file is checked; each kind of event is decoded to rows on
        first access.

    Raises:
        NotATraceError: if the file is not a trace, or has another format version.
        FileNotFoundError: if the file does not exist.
    """
    path = as_path(path, "load() takes the path of a trace")
    if path.is_dir():
        message = f"{path} is a folder, not a trace."
        raise NotATraceError(message)
    return _read(read_content(path))


def columns_of(path: PathLike, kind: type[Event]) -> pa.Table:
    """Return the columns of one kind of event as an Arrow table, without creating Python objects.

    Raises:
        NotATraceError: if the file is not a trace, or has another format version.
        FileNotFoundError: if the file does not exist.
    """
    stored, _ = _check(read_content(Path(path)))
    wanted = pa.schema([schema().field(name) for name in field_names(kind)])
    return pa.Table.from_batches(
        [table.select(wanted.names) for batch in stored for table in batch.tables(kind)], wanted
    )


def _check(content: bytes) -> tuple[list[Batch], str | None]:
    """Check every batch of a file.

    Returns:
        The batches that are intact up to the first damaged one, and one line about the damage.
    """
    found: list[Batch] = []
    try:
        messages = read_messages(content)
        head = content[: next(messages).end]
        for message in messages:
            found += read_batches(head, memoryview(content)[message.start : message.end])
    except UNREADABLE as error:
        own = (
            ""
            if isinstance(error, pa.ArrowException)
            else f" ({' '.join(str(error).split())[:200]})"
        )
        count = sum(batch.counts.total() for batch in found)
        left = f" after {count:,} events" if count else f"; {_NOTHING}"
        return found, f"{_DAMAGED}{left}{own}"
    return found, None


def is_damaged(problem: str | None) -> bool:
    """Return whether events are missing because a file is cut off, from the problem of its log.

    A recording that was killed has no end, and a file of whole batches.
    """
    return problem is not None and problem.startswith(_DAMAGED)


def read_content(path: Path) -> bytes:
    """Return the stream in a trace file.

    Raises:
        NotATraceError: if the file is not a trace, or has another format version.
    """
    content = _content(path)
    check_head(path, content)
    return content


def check_beginning(path: Path) -> None:
    """Check that the events of a trace file can be read, from the file's first bytes.

    Raises:
        NotATraceError: if it is not a trace, or has another format version.
    """
    with path.open("rb") as file:
        beginning = file.read(len(_own_head()))
    if beginning != _own_head():  # of another version, or damaged
        read_content(path)


@cache
def _own_head() -> bytes:
    return bytes(arrow_file_layout.Writer().head)


def check_head(path: Path, content: bytes) -> None:
    """Check that a file is a trace whose columns can be read.

    Args:
        path: of the file, for messages.
        content: of the file, at least its schema message.

    Raises:
        NotATraceError: if it is not a trace, or has another format version.
    """
    try:
        stream = pa.ipc.open_stream(pa.py_buffer(content))
        metadata = stream.schema.metadata or {}
    except (pa.ArrowException, OSError, ValueError):
        metadata = {}
    if metadata.get(b"format") != FORMAT:
        what = "is not an autogradviz trace" if content else "is empty"
        if not metadata and content.startswith(b"\xff" * 4):
            what += ", or its beginning is damaged"
        message = f"{path} {what}. Traces are written by trace.save() and autogradviz run."
        if path.suffix == ".py":
            message += f" To record a program: autogradviz run {path}"
        elif path.suffix == ".html":
            message += " A report opens in a browser."
        raise NotATraceError(message)
    version = metadata.get(b"format_version", b"")
    if version != str(FORMAT_VERSION).encode():
        is_older = version.isdigit() and int(version) < FORMAT_VERSION
        age, advice = ("older", "Record again") if is_older else ("newer", "Upgrade autogradviz")
        writer = metadata.get(b"autogradviz_version", b"?").decode("utf-8", "replace")
        message = (
            f"{path} was written by autogradviz {writer}, in {'an' if is_older else 'a'} {age} "
            f"format than this autogradviz ({__version__}) reads. {advice}."
        )
        raise NotATraceError(message)
    try:
        readable = _is_readable(stream.schema)
    except ValueError:  # a name that is no text
        readable = False
    if not readable:
        message = f"{path} is damaged: its columns are not those of a trace."
        raise NotATraceError(message)


def _content(path: Path) -> bytes:
    """Return the stream in a file, or only its first bytes if it cannot be a trace.

    A pipe or a device, which may be endless, is not read at all.
    """
    if path.exists() and not path.is_file():
        message = f"{path} is not a file."
        raise NotATraceError(message)
    with path.open("rb") as file:
        beginning = file.read(len(arrow_file_layout.BEGIN))
        begin = arrow_file_layout.begin_size(beginning)
        if begin == 0 and not beginning.startswith(_MARK):
            return beginning
        file.seek(begin)
        return file.read()  # one read, so that the content is in memory once


def _is_readable(found: pa.Schema) -> bool:
    """Return whether all columns are known; a column without values may be missing."""
    ours = {column.name: column.type for column in schema()}
    names = found.names
    known = set(COMMON) <= set(names) <= ours.keys() and len(set(names)) == len(names)
    return known and all(column.type.equals(ours[column.name]) for column in found)


def _find_missing(log: Log) -> str | None:
    """Return a line about the events that an intact file lacks, None if it is complete."""
    ends = log.rows(RecordingEnded)
    if not ends:
        return f"the recording has no end: it stops after {len(log):,} events"
    expected = ends[-1][field_names(RecordingEnded).index("event_count")] + 1
    if expected != len(log):
        return f"{len(log):,} of {expected:,} events could be read"
    return None
