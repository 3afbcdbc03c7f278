"""Arguments that several commands share, and the file that a command writes."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


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
