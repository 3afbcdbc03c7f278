"""A trace file that grows during the recording and is readable at any time.

Each batch is written after the last complete one, so a process that is killed leaves a file that
is readable up to its last batch.
"""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from autogradviz.event_log import arrow_file_layout
from autogradviz.event_log.overwrite_protection import check_not_exists, temp_sibling
from autogradviz.event_log.rows_to_arrow import to_batch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.event_log.overwrite_protection import PathLike
    from autogradviz.event_log.uncompressed_rows import Columns
    from autogradviz.events import Event


class Stream:
    """A trace file that is written batch by batch."""

    def __init__(self, path: PathLike) -> None:
        """Create the file.

        Raises:
            OutputExistsError: anything but an empty file exists there.
            OSError: the file cannot be created.
        """
        check_not_exists(path)
        self.path = Path(path).absolute()
        self._layout = arrow_file_layout.Writer()
        self.file = _open_new(self.path, self._layout.head)
        self._good = 0  # bytes up to the end of the last complete batch
        self._put(self._layout.head)

    def write(self, pieces: Iterable[tuple[type[Event], Columns]]) -> None:
        """Append one batch.

        Raises:
            OSError: it could not be written, or the file was removed or replaced.
        """
        message = self._layout.encoder.encode(to_batch(pieces))
        self._put(message)
        self._layout.add(message)

    def close(self) -> None:
        """Write the end-of-stream marker and the index of batches, and close the file."""
        try:
            self._put(self._layout.end())
        finally:
            self.file.close()

    def _put(self, content: bytes) -> None:
        """Write after the last complete batch; remove a partial write if it fails."""
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
        """Check that the path still refers to the open file and has not been truncated."""
        known, there = os.fstat(self.file.fileno()), self.path.stat()
        if (known.st_ino, known.st_dev) != (there.st_ino, there.st_dev):
            raise FileNotFoundError(errno.ENOENT, "another file took its place", str(self.path))
        if known.st_size < self._good:
            raise OSError(errno.EIO, "another program truncated it", str(self.path))


def _open_new(path: Path, head: bytes) -> BinaryIO:
    """Create a file exclusively; of several processes that try at once, only one succeeds.

    The file appears with its schema message, so it is never seen empty.

    Raises:
        OutputExistsError: another process was faster.
    """
    with suppress(OSError), temp_sibling(path) as partial, ExitStack() as pending:
        file = pending.enter_context(partial.open("xb", buffering=0))
        file.write(head)
        os.link(partial, path)
        pending.pop_all()
        return file
    check_not_exists(path)  # an empty file is there, or the file system has no links
    return path.open("wb", buffering=0)
