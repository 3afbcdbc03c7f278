"""Arguments that several commands share, and the file that a command writes."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autogradviz.event_log import (
    is_damaged,
)
from autogradviz.support.locks_gc_and_stderr import (
    write_stderr,
)

if TYPE_CHECKING:
    import argparse

    from autogradviz.distributed_runs import Run
    from autogradviz.trace import Trace


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
