"""Read some kinds of events of a file without decompressing the columns of the others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autogradviz.event_log.arrow_file_layout import open_stream
from autogradviz.event_log.arrow_message_sizes import read_messages
from autogradviz.event_log.log import Log
from autogradviz.event_log.rank_summary import SUMMARIZED, RankSummary, read_footer, summarize
from autogradviz.event_log.rows_to_arrow import find_runs, to_rows
from autogradviz.event_log.trace_file import UNREADABLE, check_beginning, read_content
from autogradviz.events import field_names

if TYPE_CHECKING:
    from collections.abc import Collection

    from autogradviz.event_log.overwrite_protection import PathLike
    from autogradviz.events import Event


def read_kinds(path: PathLike, kinds: Collection[type[Event]]) -> Log:
    """Return a log of some kinds of events; of a damaged file, those before the damage.

    Raises:
        NotATraceError: if the file is not a trace, or has another format version.
        FileNotFoundError: if the file does not exist.
    """
    content = read_content(Path(path))
    log = Log()
    columns = {"kind", *(name for kind in kinds for name in field_names(kind))}
    try:
        messages = read_messages(content)
        head = content[: next(messages).end]
        for message in messages:
            piece = memoryview(content)[message.start : message.end]
            for batch in open_stream(head, piece, columns):
                for run in find_runs(batch, kinds):
                    log.extend_rows(run.kind, to_rows(batch, run))
    except UNREADABLE:
        pass
    log.sort()
    return log


def read_summary(path: PathLike) -> RankSummary:
    """Return the summary of the recording of one rank.

    Raises:
        NotATraceError: if the file is not a trace, or has another format version.
        FileNotFoundError: if the file does not exist.
    """
    found = read_footer(Path(path))
    if found is None:
        return summarize(read_kinds(path, SUMMARIZED))
    check_beginning(Path(path))
    return found
