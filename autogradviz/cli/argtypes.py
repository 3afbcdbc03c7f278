"""Numbers on the command line."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError


def whole_number(text: str) -> int:
    """Return a number of steps, from 1."""
    if not text.isdecimal() or int(text) < 1:
        message = f"{text!r} is not a whole number from 1"
        raise ArgumentTypeError(message)
    return int(text)


def span(text: str) -> range:
    """Return the steps that "A:B" names; either may be left out of it."""
    first, colon, last = text.partition(":")
    numbers = all(part.isdecimal() or not part for part in (first, last))
    found = range(int(first or 0), int(last or sys.maxsize)) if numbers and colon else range(0)
    if not found:
        message = f"{text!r} is not A:B, with A smaller than B"
        raise ArgumentTypeError(message)
    return found
