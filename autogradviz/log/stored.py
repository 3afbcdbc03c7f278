"""The events of a file: checked when it is opened."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from autogradviz.log.batches import Batch, Batches, open_stream
from autogradviz.log.columns import find_runs
from autogradviz.log.messages import read_messages

UNREADABLE: Final = (pa.ArrowException, OSError, ValueError, MemoryError)
"""What Arrow raises, or we do, where a file holds what no recording writes."""


def check(content: bytes) -> tuple[Batches, str | None]:
    """Check every batch of a stream.

    Returns:
        The batches that read well, and where that ended, in one line, if it was too early.
    """
    found = Batches()
    try:
        _add_each(found, content)
    except UNREADABLE as error:
        reason = " ".join(str(error).split())[:200]
        return found, f"the file is cut off or damaged after {len(found):,} events ({reason})"
    return found, None


def _add_each(found: Batches, content: bytes) -> None:
    messages = read_messages(content)
    found.head = content[: next(messages).end]
    whole = memoryview(content)
    for message in messages:
        piece = whole[message.start : message.end]
        runs = [run for batch in open_stream(found.head, piece) for run in find_runs(batch)]
        if runs:
            found.add(Batch(piece, runs))
