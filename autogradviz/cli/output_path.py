"""The file that a program's trace goes to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autogradviz.errors import FileExistsAlreadyError
from autogradviz.event_log import save_new

if TYPE_CHECKING:
    from autogradviz.trace import Trace


class Target:
    """A file in the folder where the program begins, whichever it changes to."""

    def __init__(self, asked: Path | None, stem: str) -> None:
        """Name the file.

        Args:
            asked: the name that somebody asked for, or None.
            stem: what the name is made of where nobody did.
        """
        self._folder = Path.cwd()
        self._stem = stem
        self._is_asked = asked is not None
        self.path = self._free_name() if asked is None else asked.absolute()

    def _free_name(self) -> Path:
        """Return a name that no file has: "train.agv", "train-2.agv", ...."""
        count, path = 1, self._folder / f"{self._stem}.agv"
        while path.exists():
            count += 1
            path = self._folder / f"{self._stem}-{count}.agv"
        return path

    def rename(self) -> bool:
        """Take another name, as a process beside this one was faster.

        Returns:
            Whether that may be: a name that was asked for stays.
        """
        if not self._is_asked:
            self.path = self._free_name()
        return not self._is_asked

    def write(self, trace: Trace) -> None:
        """Write a trace where nothing stands.

        Raises:
            FileExistsAlreadyError: something stands where it was asked for.
        """
        while True:
            try:
                save_new(trace.log, self.path)
            except FileExistsAlreadyError:
                if not self.rename():
                    raise
            else:
                return

    def __str__(self) -> str:
        """Return the name as the shell that started the program would write it."""
        here = self._folder
        return str(self.path.relative_to(here) if self.path.is_relative_to(here) else self.path)
