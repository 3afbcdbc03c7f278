"""Rows read by field name, for the kinds that come by the hundred thousand."""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from autogradviz.events import EVENT_TYPES, Event, field_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.log import Log

E = TypeVar("E", bound=Event)


_ROW_TYPES: Final[dict[type[Event], Any]] = {
    kind: namedtuple(kind.__name__, field_names(kind))  # noqa: PYI024 - made from the events
    for kind in EVENT_TYPES
}


def rows_of(log: Log, kind: type[E]) -> Iterator[E]:
    """Yield what reads like the events of a kind, oldest first, at a tenth of their cost.

    They are tuples: ``isinstance`` does not know them.
    """
    return cast("Iterator[E]", map(_ROW_TYPES[kind]._make, log.rows(kind)))
