"""Arguments that several commands share, and the file that a command writes."""

from __future__ import annotations

import mimetypes
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.formatting import format_bytes
from autogradviz.errors import AutogradvizError, OutputExistsError
from autogradviz.event_log import (
    check_folder,
    check_not_exists,
    is_complete_trace,
    is_damaged,
    path_of_rank,
    save_new,
)
from autogradviz.support.locks_gc_rank_and_stderr import (
    is_rank_file,
    last_steps_path,
    trace_path,
    write_stderr,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from autogradviz.distributed_runs import Run
    from autogradviz.support.locks_gc_rank_and_stderr import Rank
    from autogradviz.trace import Trace


# --- the file that a command writes ---------------------------------------------------------------


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
        rank: Rank | None = None,
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
        """
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
        return self._replaces_own and not path.is_symlink() and is_complete_trace(path)

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


# --- arguments that several commands share, and argparse types ------------------------------------


MOST_UNREADABLE: Final = 8
"""Files of a run that cannot be read and are named."""


def add_trace(parser: argparse.ArgumentParser) -> None:
    """Add the positional argument TRACE."""
    parser.add_argument("trace", type=_trace, metavar="TRACE", help="a trace file (.agv)")


def add_trace_or_run(parser: argparse.ArgumentParser) -> None:
    """Add the positional argument TRACE, which may be the folder of a run of several ranks."""
    text = "a trace file (.agv), or the folder of a distributed run"
    parser.add_argument("trace", type=_trace, metavar="TRACE", help=text)


def _trace(text: str) -> Path:
    """Return the path of a trace, which is read at several places and not as a stream."""
    if text == "-":
        message = "a trace cannot be read from standard input: write it to a file, and name that"
        raise ArgumentTypeError(message)
    return Path(text)


def add_output(parser: argparse.ArgumentParser, default: str, *, overwrite: bool = True) -> None:
    """Add ``-o FILE``, and ``--overwrite`` unless the command never replaces a file of the user."""
    text = f"file to write (default: {default})"
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=text)
    if not overwrite:
        return
    text = "replace FILE, whatever it is; by default only an earlier output of the same kind"
    parser.add_argument("--overwrite", action="store_true", help=text)


def add_redact(parser: argparse.ArgumentParser) -> None:
    """Add ``--redact``."""
    text = "leave source text, values of variables and directory names out"
    parser.add_argument("--redact", action="store_true", help=text)


def warn_incomplete(found: Trace | Run, path: Path, options: argparse.Namespace) -> None:
    """Print what is missing in the file of a trace that was cut off or damaged.

    The command then does what it can with the rest, and exits with 1. Of a run, the files that
    cannot be read are named.
    """
    from autogradviz.distributed_runs.rank_files import (
        describe_unreadable,  # not when another command starts
    )
    from autogradviz.trace import Trace

    if not isinstance(found, Trace):
        files = {file.rank: file for file in found.files}
        for file in found.unreadable[:MOST_UNREADABLE]:
            write_stderr(f"autogradviz: {path}: {describe_unreadable(file, files)}\n")
        if len(found.unreadable) > MOST_UNREADABLE:
            others = len(found.unreadable) - MOST_UNREADABLE
            write_stderr(f"autogradviz: {path}: {others:,} other files cannot be read\n")
    elif found.log.problem is not None:
        damaged = is_damaged(found.log.problem)
        empty = damaged and len(found.log) and not found.analysis.graph.nodes
        rest = "; no part of the graph is left" if empty else ""
        write_stderr(f"autogradviz: {path}: {found.log.problem}{rest}\n")
        options.is_incomplete = damaged


def has_graph(found: Trace | Run) -> bool:
    """Return whether there is something to draw: not in a file that is cut off before its graph."""
    from autogradviz.trace import Trace

    if not isinstance(found, Trace) or not is_damaged(found.log.problem):
        return True
    return bool(found.analysis.graph.nodes)


def depth(text: str) -> int:
    """Return a number of module levels, from 0."""
    if not text.isdecimal():
        message = f"{text!r} is not a number of levels, from 0"
        raise ArgumentTypeError(message)
    return int(text)


def step_count(text: str) -> int:
    """Return a number of steps, from 1."""
    if not text.isdecimal() or int(text) < 1:
        message = f"{text!r} is not a positive integer"
        raise ArgumentTypeError(message)
    return int(text)


def seconds(text: str) -> float:
    """Return a positive number of seconds."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        message = f"{text!r} is not a positive number of seconds"
        raise ArgumentTypeError(message)
    return found


def step_range(text: str) -> range:
    """Return the steps of "A:B"; A, B or both may be missing."""
    first, colon, last = text.partition(":")
    numbers = all(part.isdecimal() or not part for part in (first, last))
    steps = range(int(first or 0), int(last or sys.maxsize)) if numbers and colon else range(0)
    if not steps:
        message = f"{text!r} is not A:B, with A smaller than B"
        raise ArgumentTypeError(message)
    return steps
