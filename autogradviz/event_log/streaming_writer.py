"""A trace that is written while it is recorded: what is on disk is always a trace.

Each batch goes to the file in one write, behind the last good one, so that a process that is
killed leaves a file that reads well up to its last batch.
"""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from autogradviz.event_log.arrow_schema import to_batch
from autogradviz.event_log.arrow_stream import Encoder
from autogradviz.event_log.atomic_write import beside, check_not_exists

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.event_log.atomic_write import PathLike
    from autogradviz.event_log.rows import Columns
    from autogradviz.events import Event


class Stream:
    """One file that grows batch by batch."""

    def __init__(self, path: PathLike) -> None:
        """Begin a file.

        Raises:
            OutputExistsError: something stands there that is not an empty file.
            OSError: the file cannot be made.
        """
        check_not_exists(path)
        self.path = Path(path).absolute()
        self._encoder = Encoder()
        self.file = _open_new(self.path, self._encoder.head)
        self._good = 0  # bytes that are whole batches
        self._put(self._encoder.head)

    def write(self, pieces: Iterable[tuple[type[Event], Columns]]) -> None:
        """Append one batch.

        Raises:
            OSError: it could not be written, or somebody took the file away.
        """
        self._put(self._encoder.encode(to_batch(pieces)))

    def close(self) -> None:
        """End the file."""
        try:
            self._put(self._encoder.end())
        finally:
            self.file.close()

    def _put(self, content: bytes) -> None:
        """Write behind what is good; where only a part of it fits, that is taken back."""
        self._require_in_place()
        try:
            self.file.seek(self._good)
            rest = memoryview(content)
            while rest:
                rest = rest[self.file.write(rest) :]
        except BaseException:
            self.file.truncate(self._good)
            raise
        self._good += len(content)

    def _require_in_place(self) -> None:
        """Check that the path still leads to our file: what is written elsewhere is lost."""
        known, there = os.fstat(self.file.fileno()), self.path.stat()
        if (known.st_ino, known.st_dev) != (there.st_ino, there.st_dev):
            raise FileNotFoundError(errno.ENOENT, "another file took its place", str(self.path))
        if known.st_size < self._good:
            raise OSError(errno.EIO, "somebody else cut it off", str(self.path))


def _open_new(path: Path, head: bytes) -> BinaryIO:
    """Open a file that nobody else has: of several processes that begin one at once only one does.

    It has its head when it appears, so that it is never seen empty.

    Raises:
        OutputExistsError: another process was faster.
    """
    with suppress(OSError), beside(path) as partial, ExitStack() as pending:
        file = pending.enter_context(partial.open("xb", buffering=0))
        file.write(head)
        os.link(partial, path)
        pending.pop_all()
        return file
    check_not_exists(path)  # an empty file is there, or the file system has no links
    return path.open("wb", buffering=0)
