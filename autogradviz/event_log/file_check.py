"""The events of a file: checked when it is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from autogradviz.event_log.arrow_batches import Batch, open_stream
from autogradviz.event_log.arrow_schema import find_runs
from autogradviz.event_log.flatbuffer_limits import read_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, MemoryError)
"""What Arrow raises, or we do, where a file holds what no recording writes."""


def check(content: bytes) -> tuple[list[Batch], str | None]:
    """Check every batch of a stream.

    Returns:
        The batches that read well, and where that ended, in one line, if it was too early.
    """
    found: list[Batch] = []
    try:
        found.extend(_read_each(content))
    except UNREADABLE as error:
        reason = " ".join(str(error).split())[:200]
        count = sum(batch.counts.total() for batch in found)
        return found, f"the file is cut off or damaged after {count:,} events ({reason})"
    return found, None


def _read_each(content: bytes) -> Iterator[Batch]:
    messages = read_messages(content)
    head = content[: next(messages).end]
    whole = memoryview(content)
    for message in messages:
        piece = whole[message.start : message.end]
        runs = [run for batch in open_stream(head, piece) for run in find_runs(batch)]
        if runs:
            yield Batch(head, piece, runs)
