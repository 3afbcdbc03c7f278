"""The definitions that the events of a log refer to."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from autogradviz.events import EVENT_TYPES, field_names
from autogradviz.events.field_types import traits

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from autogradviz.event_log import Log
    from autogradviz.events import Event
    from autogradviz.events.field_types import Target

DEFINITIONS: Final = tuple(kind for kind in reversed(EVENT_TYPES) if traits(kind).defines)
"""Kinds of definitions. Each comes before those that it refers to, as ``StackSeen`` to frames."""

PASSING: Final = tuple(
    kind for kind in EVENT_TYPES if not traits(kind).defines and not traits(kind).lasting
)
"""Events that are dropped with their step."""


def defined(kind: type[Event]) -> Target | None:
    """Return the target that a kind of definition defines, None if it defines no id."""
    found = [used.target for used in traits(kind).references if used.name in traits(kind).defines]
    return found[0] if found else None


DEFINED_TARGETS: Final = tuple(
    sorted({target for kind in DEFINITIONS if (target := defined(kind)) is not None})
)
"""The targets that definitions define."""

USES: Final = {
    kind: tuple(used for used in traits(kind).references if used.name not in traits(kind).defines)
    for kind in EVENT_TYPES
}
"""The fields of each kind that refer to definitions other than the event's own."""


def used_ids(log: Log, target: Target) -> set[int]:
    """Return the ids of a target that events of a log refer to."""
    found: set[int | None] = set()
    for kind in EVENT_TYPES:
        for used in USES[kind]:
            if used.target == target:
                column = log.recent(kind).column(used.place)
                found.update(chain.from_iterable(column) if used.many else column)
    return {number for number in found if number is not None}


def used_rows(log: Log, kind: type[Event], ids: Container[int]) -> Iterable[bool]:
    """Return whether each definition of a kind is still needed, the oldest first.

    Args:
        log: the recording.
        kind: a kind of definition.
        ids: the ids in use of what it defines. Where it defines no id, the newest definition of
            each value is needed.
    """
    names, rows = field_names(kind), log.recent(kind)
    places = [names.index(name) for name in traits(kind).defines]
    if defined(kind) is not None:
        (place,) = places
        return map(ids.__contains__, rows.column(place))
    values = [(row[0], tuple([row[place] for place in places])) for row in rows.rows()]
    newest = {value: number for number, value in values}
    return [newest[value] == number for number, value in values]
