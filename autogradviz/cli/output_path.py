"""The file that a command writes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import format_bytes
from autogradviz.errors import AutogradvizError, OutputExistsError
from autogradviz.event_log import check_folder, check_not_exists, path_of_rank, save_new
from autogradviz.support.process_rank import is_rank_file, last_steps_path, trace_path

if TYPE_CHECKING:
    import argparse

    from autogradviz.support.process_rank import Rank
    from autogradviz.trace import Trace


def choose_output(options: argparse.Namespace, suffix: str) -> Path:
    """Return the file to write, which is never the trace itself.

    Raises:
        AutogradvizError: if ``-o`` names the trace.
    """
    source: Path = options.trace
    output: Path = options.output or Path(source.stem + suffix)
    if output.exists() and source.exists() and output.samefile(source):
        message = f"{output} is the trace itself; name another file with -o"
        raise AutogradvizError(message)
    return output


def print_written(path: Path) -> None:
    """Print the name and size of a file."""
    sys.stdout.write(f"{path} ({format_bytes(path.stat().st_size)})\n")


class TraceFile:
    """The file of a program's trace, in the working directory in which the program starts."""

    def __init__(
        self, path: str | None, stem: str, *, overwrite: bool, rank: Rank | None = None
    ) -> None:
        """Choose the file.

        Args:
            path: the file that the user named, or the folder of a run; None for a free name made
                from ``stem``.
            stem: base name of files and folders that the user did not name.
            overwrite: delete the file that the user named, when the recording begins.
            rank: of this process, if there are several: each writes a file in one folder.
        """
        self._folder = Path.cwd()
        self._is_named_by_user = path is not None
        self._overwrite = overwrite
        if rank is not None:
            folder = f"{stem}-{rank.run_name}" if path is None else path
            self._first = path_of_rank(self._folder / folder, rank)
        else:
            self._first = trace_path(self._folder / f"{stem}.agv" if path is None else path)
        self.path = self._free_name() if path is None else self._first

    def _free_name(self) -> Path:
        """Return a name that no file has: "train.agv", "train-2.agv", ...."""
        count, path = 1, self._first
        while path.exists() or last_steps_path(path).exists():
            count += 1
            path = self._first.with_name(f"{self._first.stem}-{count}{self._first.suffix}")
        return path

    def check(self) -> None:
        """Check that the file can be written.

        Raises:
            OutputExistsError: if another file exists that may not be replaced.
            FileNotFoundError: if its folder does not exist.
        """
        folder = self.path.parent
        if is_rank_file(self.path) and folder.exists() and not folder.is_dir():
            message = f"{folder} exists and is not a folder; remove it, or name another one."
            raise OutputExistsError(message)
        if not is_rank_file(self.path):
            check_folder(Path(str(self)))
        if not (self._overwrite and self.path.is_file()):
            check_not_exists(str(self))
        if not self._overwrite:
            check_not_exists(last_steps_path(Path(str(self))))

    def delete_old(self) -> None:
        """Delete the files that the user allowed to replace, once."""
        for path in (self.path, last_steps_path(self.path)):
            if self._overwrite and path.is_file():
                path.unlink()
        self._overwrite = False

    def rename(self) -> bool:
        """Choose another free name, because another process took this one.

        Returns:
            False if the user named the file, which then keeps its name.
        """
        if not self._is_named_by_user:
            self.path = self._free_name()
        return not self._is_named_by_user

    def write(self, trace: Trace) -> None:
        """Write a trace to a new file.

        Raises:
            OutputExistsError: if the file that the user named exists.
        """
        while True:
            try:
                save_new(trace.log, self.path)
            except OutputExistsError:
                if not self.rename():
                    raise
            else:
                return

    def __str__(self) -> str:
        """Return the path, relative to the directory in which the program started."""
        here = self._folder
        return str(self.path.relative_to(here) if self.path.is_relative_to(here) else self.path)
