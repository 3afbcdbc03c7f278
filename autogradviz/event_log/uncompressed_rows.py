"""The uncompressed rows of one kind of event, in one flat list.

NOTE [ Flat rows ]
``append`` is ``extend`` of that list with a tuple: the values are copied and the tuple is freed at
once, so a row is not an object that the garbage collector counts or visits. It is one call into C
that runs no Python code in any version from 3.10 on, so another thread sees a complete row or
nothing; the same holds for slices. Dropped rows are skipped first, and deleted once they are a
quarter of the list, because each deletion moves the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain, compress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from autogradviz.events import field_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from autogradviz.events import Event

Row: TypeAlias = tuple[Any, ...]
Columns: TypeAlias = list[list[Any]]
"""The values of each field of some rows, in the order of the fields."""

_SKIPPED: Final = 4  # at most one in so many values is skipped


class Rows:
    """The rows of a kind; see NOTE [ Flat rows ]."""

    __slots__ = ("_first", "_values", "_width", "append")

    def __init__(self, kind: type[Event], values: list[Any] | None = None) -> None:
        """Start with the values of some rows, one row after the other, or with none."""
        self._width = len(field_names(kind))
        self._values: list[Any] = [] if values is None else values
        self._first = 0  # position of the oldest row
        self.append = self._values.extend
        """Append one row: a tuple with one value per field."""

    def __len__(self) -> int:
        return (len(self._values) - self._first) // self._width

    def values(self) -> list[Any]:
        """Return the values of all rows, one row after the other."""
        return self._values[self._first :]

    def rows(self, stop: int | None = None) -> list[Row]:
        """Return the rows, or the first ones, as tuples."""
        end = None if stop is None else self._place(stop)
        return _in_tuples(self._values[self._first : end], self._width)

    def newest(self, count: int) -> list[Row]:
        """Return the last rows, oldest first; other threads may append or drop rows meanwhile."""
        count = min(count, len(self))
        return _in_tuples(self._values[-count * self._width :] if count else [], self._width)

    def column(self, field: int) -> list[Any]:
        """Return the values of one field."""
        return self._values[self._first + field :: self._width]

    def columns(self, start: int = 0, stop: int | None = None) -> Columns:
        """Return the values of each field of a range of rows."""
        end = None if stop is None else self._place(stop)
        values = self._values[self._place(start) : end]
        return [values[field :: self._width] for field in range(self._width)]

    def find(self, seq: int, start: int = 0, stop: int | None = None) -> int:
        """Return the number of rows older than an event, searching a range of rows."""
        last = len(self) if stop is None else stop
        begins = range(self._first, self._place(last), self._width)
        return bisect_left(begins, seq, lo=start, key=self._values.__getitem__)

    def replace(self, count: int, kept: Sequence[Row] = ()) -> None:
        """Replace the oldest rows by fewer ones."""
        self._replace(self._place(count), list(chain.from_iterable(kept)))

    def keep_only(self, count: int, kept: Iterable[bool]) -> int:
        """Keep some of the oldest rows, and return the number of those that are dropped.

        Args:
            count: the number of rows from which some are dropped.
            kept: whether to keep each of them, the oldest first.
        """
        stop = self._place(count)
        each = iter(self._values[self._first : stop])
        rows = zip(*[each] * self._width, strict=True)
        values = list(chain.from_iterable(compress(rows, kept)))
        dropped = count - len(values) // self._width
        if dropped:
            self._replace(stop, values)
        return dropped

    def _replace(self, stop: int, values: list[Any]) -> None:
        """Replace all values before a place by fewer ones."""
        self._first = stop - len(values)
        self._values[self._first : stop] = values
        if self._first * _SKIPPED >= len(self._values):
            del self._values[: self._first]
            self._first = 0

    def sort(self) -> None:
        """Sort the rows by their numbers."""
        numbers = self.column(0)
        if numbers != sorted(numbers):
            self.replace(len(numbers), sorted(self.rows(len(numbers)), key=itemgetter(0)))

    def _place(self, row: int) -> int:
        return self._first + row * self._width


def total(kinds: Iterable[Rows]) -> int:
    """Return the number of rows of several kinds. Most kinds have none, and cost little here."""
    return sum([len(rows) for rows in kinds if rows._values])  # noqa: SLF001


def in_rows(columns: Columns) -> list[Row]:
    """Return columns as rows."""
    return list(zip(*columns, strict=True))


def joined(columns: Columns, more: Columns) -> Columns:
    """Return columns with more values appended to each."""
    for column, values in zip(columns, more, strict=True):
        column.extend(values)
    return columns


def _in_tuples(values: list[Any], width: int) -> list[Row]:
    each = iter(values)
    return list(zip(*[each] * width, strict=True))
