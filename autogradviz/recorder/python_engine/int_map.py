"""A growing array of ints, and a dict with the same interface for when most of it is forgotten."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from autogradviz.events import NO_ID

if TYPE_CHECKING:
    from array import array

_SPARE: Final = 256  # places added at a time


class IntMap(dict[int, int]):
    """Replaces an array most of whose items were forgotten; a missing item is NO_ID."""

    def __missing__(self, index: int) -> int:
        return NO_ID

    def __len__(self) -> int:
        return sys.maxsize


def grow(numbers: array[int] | IntMap, index: int) -> None:
    """Extend an array with NO_ID so that an index exists, and some more.

    Setting an item costs half of appending it.
    """
    missing = index + 1 - len(numbers)
    if missing > 0 and not isinstance(numbers, IntMap):
        numbers.extend([NO_ID] * (missing + _SPARE))
