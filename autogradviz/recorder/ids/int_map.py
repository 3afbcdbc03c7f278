"""Numbers by number: an array that grows, and what stands in for it when most is forgotten."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from autogradviz.events import NO_ID

if TYPE_CHECKING:
    from array import array

_SPARE: Final = 256  # grown at a time


class IntMap(dict[int, int]):
    """Stands in for an array, most of which has been forgotten."""

    def __missing__(self, number: int) -> int:
        return NO_ID

    def __len__(self) -> int:
        return sys.maxsize


def grow(numbers: array[int] | IntMap, place: int) -> None:
    """Grow an array up to a place and some more; what was put nowhere is NO_ID.

    Putting a number in its place costs half of appending it.
    """
    missing = place + 1 - len(numbers)
    if missing > 0 and not isinstance(numbers, IntMap):
        numbers.extend([NO_ID] * (missing + _SPARE))
