"""The trace file that a command writes: its name, its checks, and what is printed about it."""

from __future__ import annotations

import mimetypes
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import format_bytes
from autogradviz.errors import AutogradvizError, OutputExistsError
from autogradviz.event_log import (
    check_folder,
    check_not_exists,
    is_complete_trace,
    load,
    path_of_rank,
    save_new,
)
from autogradviz.events import FrameSeen
from autogradviz.support.rank_and_trace_paths import is_rank_file, last_steps_path, trace_path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from autogradviz.support.rank_and_trace_paths import Rank
    from autogradviz.trace import Trace


def choose_output(
    options: argparse.Namespace, suffix: str, others: Sequence[str] | None = None
) -> Path:
    """Return the file to write, which is never the trace itself.

    Args:
        options: of the command.
        suffix: of the file that is written by default.
        others: suffixes of its other formats: those of pictures and pages are refused. None if
            it may have any.

    Raises:
        AutogradvizError: if ``-o`` names the trace.
    """
    source: Path = options.trace
    output: Path = options.output or Path(source.stem + suffix)
    kind = mimetypes.guess_type(output.name)[0] or ""
    allowed = None if others is None else {suffix, *others}
    known = allowed is None or output.suffix.lower() in allowed
    if not known and kind.startswith(("image/", "text/html")):
        writes = " or ".join((suffix, *(others or ())))
        options.parser.error(f"{output}: {options.parser.prog.split()[-1]} writes {writes}")
    if output.exists() and source.exists() and output.samefile(source):
        message = f"{output} is the trace itself; name another file with -o"
        raise AutogradvizError(message)
    return output


def print_written(path: Path) -> None:
    """Print the name and size of a file."""
    sys.stdout.write(f"{path} ({format_bytes(path.stat().st_size)})\n")


class TraceFile:
    """The file of a program's trace, in the working directory in which the program starts.

    A file that the user did not name replaces the trace of the last run of the script. All other
    files are kept, incomplete traces too: another process may be writing them.
    """

    def __init__(
        self, path: str | None, stem: str, *, overwrite: bool, replace: bool = True,
        rank: Rank | None = None, script: Path | None = None,
    ) -> None:  # fmt: skip
        """Choose the file.

        Args:
            path: the file that the user named, or the folder of a run; None for a name made from
                ``stem``.
            stem: base name of files and folders that the user did not name.
            overwrite: delete the file that the user named, when the recording begins.
            replace: delete an earlier trace that has the name made from ``stem``, when the
                recording begins; otherwise choose a name that no file has.
            rank: of this process, if there are several: each writes a file in one folder.
            script: the file that is run; a trace of another one is no earlier trace of it.
        """
        self._script = script
        self._of_others: dict[Path, bool] = {}
        self._folder = Path.cwd()
        self._is_named_by_user = path is not None
        self._overwrite = overwrite
        if rank is not None:
            folder = f"{stem}-{rank.run_name}" if path is None else path
            self._first = path_of_rank(self._folder / folder, rank)
        else:
            self._first = trace_path(self._folder / f"{stem}.agv" if path is None else path)
        self._replaces_own = replace and path is None and rank is None
        self.path = self._own_name() if path is None else self._first

    def _own_name(self) -> Path:
        """Return a name that may be used: "train.agv", "train-2.agv", ...."""
        count, path = 1, self._first
        while (path.exists() and not self._is_replaced(path)) or last_steps_path(path).exists():
            count += 1
            path = self._first.with_name(f"{self._first.stem}-{count}{self._first.suffix}")
        return path

    def _is_replaced(self, path: Path) -> bool:
        return (
            self._replaces_own
            and not path.is_symlink()
            and is_complete_trace(path)
            and not self._is_of_another_script(path)
        )

    def _is_of_another_script(self, path: Path) -> bool:
        """Return whether a trace has lines of the user, and none of the script that is run."""
        if self._script is None:
            return False
        if path not in self._of_others:
            log = load(path)
            files = {name for (name,) in log.fields(FrameSeen, "filename")}
            known = {os.path.realpath(name) for name in files if Path(name).is_absolute()}
            self._of_others[path] = bool(known) and os.path.realpath(self._script) not in known
        return self._of_others[path]

    @property
    def kept(self) -> Path | None:
        """The trace of another script that has the name which this one would have."""
        return self._first if self._of_others.get(self._first) else None

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
        if not (self._overwrite and self.path.is_file()) and not self._is_replaced(self.path):
            check_not_exists(str(self))
        if not self._overwrite:
            check_not_exists(last_steps_path(Path(str(self))))

    def delete_old(self) -> None:
        """Delete the files that may be replaced, once."""
        if self._is_replaced(self.path):
            self.path.unlink()
        for path in (self.path, last_steps_path(self.path)):
            if self._overwrite and path.is_file():
                path.unlink()
        self._overwrite = self._replaces_own = False

    def rename(self) -> bool:
        """Choose another free name, because another process took this one.

        Returns:
            False if the user named the file, which then keeps its name.
        """
        if not self._is_named_by_user:
            self.path = self._own_name()
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
