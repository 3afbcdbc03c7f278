"""The rows of one kind of event while they are few: one list, field behind field.

NOTE [ Flat rows ]
``append`` is ``extend`` of that list, given a tuple: the values are copied and the tuple is gone at
once, so that a row is no object that the garbage collector counts, or looks at. It is one call
into C that runs no Python in any version from 3.10 on, so another thread sees all of a row or
nothing; so is taking a slice. What is let go of is skipped first, and deleted once it is
a quarter of the list: each deletion moves all that stays.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from autogradviz.events import field_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.events import Event

Row: TypeAlias = tuple[Any, ...]
Columns: TypeAlias = list[list[Any]]
"""The values of each field of some rows, in the order of the fields."""

_SKIPPED: Final = 4  # at most one in so many values is skipped


class Rows:
    """The rows of a kind; see NOTE [ Flat rows ]."""

    __slots__ = ("_first", "_values", "_width", "append")

    def __init__(self, kind: type[Event], values: list[Any] | None = None) -> None:
        """Begin with the values of some rows, one row behind the other, or with none."""
        self._width = len(field_names(kind))
        self._values: list[Any] = [] if values is None else values
        self._first = 0  # where the oldest row begins
        self.append = self._values.extend
        """Appends one row: a tuple of as many values as the kind has fields."""

    def __len__(self) -> int:
        return (len(self._values) - self._first) // self._width

    def values(self) -> list[Any]:
        """Return the values of all rows, one row behind the other."""
        return self._values[self._first :]

    def rows(self, stop: int | None = None) -> list[Row]:
        """Return the rows, or the first ones, as tuples."""
        end = None if stop is None else self._place(stop)
        return _in_tuples(self._values[self._first : end], self._width)

    def newest(self, count: int) -> list[Row]:
        """Return the last rows, oldest first; others may append, or seal older ones, meanwhile."""
        count = min(count, len(self))
        return _in_tuples(self._values[-count * self._width :] if count else [], self._width)

    def column(self, field: int) -> list[Any]:
        """Return the values of one field."""
        return self._values[self._first + field :: self._width]

    def columns(self, start: int = 0, stop: int | None = None) -> Columns:
        """Return the values of each field from one row to another, or to the end."""
        end = None if stop is None else self._place(stop)
        values = self._values[self._place(start) : end]
        return [values[field :: self._width] for field in range(self._width)]

    def find(self, seq: int, start: int = 0, stop: int | None = None) -> int:
        """Return how many rows are older than an event; it is looked for from a row to another."""
        last = len(self) if stop is None else stop
        begins = range(self._first, self._place(last), self._width)
        return bisect_left(begins, seq, lo=start, key=self._values.__getitem__)

    def replace(self, count: int, kept: Sequence[Row] = ()) -> None:
        """Put fewer rows in the place of the oldest ones."""
        stop = self._place(count)
        self._first = stop - len(kept) * self._width
        self._values[self._first : stop] = chain.from_iterable(kept)
        if self._first * _SKIPPED >= len(self._values):
            del self._values[: self._first]
            self._first = 0

    def sort(self) -> None:
        """Put the rows in the order of their numbers."""
        numbers = self.column(0)
        if numbers != sorted(numbers):
            self.replace(len(numbers), sorted(self.rows(len(numbers)), key=itemgetter(0)))

    def _place(self, row: int) -> int:
        return self._first + row * self._width


def _in_tuples(values: list[Any], width: int) -> list[Row]:
    each = iter(values)
    return list(zip(*[each] * width, strict=True))
