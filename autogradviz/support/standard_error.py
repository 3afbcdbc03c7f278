"""Messages on standard error."""

from __future__ import annotations

import sys
from contextlib import suppress


def write_stderr(text: str) -> None:
    """Write to standard error, unless the recorded program has closed it."""
    if is_open():
        with suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()


def print_line(message: str) -> None:
    """Print one line on standard error, unless the recorded program has closed it."""
    write_stderr(f"autogradviz: {message}\n")


def is_open() -> bool:
    """Return whether anything can be written to standard error."""
    return sys.stderr is not None and not sys.stderr.closed
