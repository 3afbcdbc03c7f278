"""Read a trace file that another process writes, without locking it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.errors import NotATraceError
from autogradviz.event_log.arrow_file_layout import Batch, begin_size, read_batches
from autogradviz.event_log.arrow_message_sizes import OversizedError, read_messages
from autogradviz.event_log.trace_file import UNREADABLE, check_head

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.event_log import PathLike

END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_AT_ONCE: Final = 2**24
"""Bytes that are read at once, so that a long file appears step by step."""


class FollowedFile:
    """The batches of a growing trace file.

    A batch counts once it is complete. The file is opened for each reading, so a writer can
    remove or replace it at any time, on every system.

    Attributes:
        exists: whether the file was there when it was last read.
        ended: whether the recording has ended.
        replacements: number of times that another file took its place.
        unread: bytes that are known to follow.
    """

    def __init__(self, path: PathLike) -> None:
        self.path = Path(path)
        self.replacements = 0
        self._identity: tuple[int, int] | None = None
        self._restart()

    def _restart(self) -> None:
        self.exists = self.ended = False
        self.unread = 0
        self._head = b""
        self._place = 0
        self._limit = _AT_ONCE

    def read(self) -> Iterator[Batch]:
        """Yield the batches that were completed since the last call.

        Raises:
            NotATraceError: if the file is not a trace, has another format version, or is damaged.
            OSError: if it exists and cannot be read.
        """
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            self.exists = False
            return
        with file:
            status = os.fstat(file.fileno())
            identity = (status.st_ino, status.st_dev)
            if self._identity not in (None, identity) or status.st_size < self._place:
                self.replacements += 1
                self._restart()
            self._identity, self.exists = identity, True
            if self.ended or status.st_size == self._place:
                return
            file.seek(self._place)
            content = file.read(self._limit)
        self.unread = status.st_size - self._place - len(content)
        yield from self._complete_batches(content)

    def _complete_batches(self, content: bytes) -> Iterator[Batch]:
        skipped = 0 if self._head else begin_size(content)
        content = content[skipped:]
        begin = self._place + skipped
        messages = read_messages(content)
        try:
            if not self._head:
                if not content.startswith(END_OF_STREAM[:4]):
                    check_head(self.path, content)
                head = next(messages, None)
                if head is None:
                    return
                check_head(self.path, content[: head.end])
                self._head = content[: head.end]
                self._place = begin + head.end
            for message in messages:
                yield from self._batches_of(content[message.start : message.end])
                self._place = begin + message.end
        except NotATraceError:  # a ValueError too
            raise
        except OversizedError as error:
            raise self._damaged(error) from error
        except ValueError:  # the last batch is not complete
            if len(content) == self._limit and self._place == begin:
                self._limit *= 2
                self.unread += len(content)
            return
        self.ended = content[self._place - begin :].startswith(END_OF_STREAM)

    def _batches_of(self, message: bytes) -> list[Batch]:
        try:
            return list(read_batches(self._head, message))
        except UNREADABLE as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> NotATraceError:
        reason = " ".join(str(error).split())[:200]
        message = f"{self.path} is damaged after byte {self._place:,} ({reason})."
        return NotATraceError(message)
