"""Hypothesis strategies for events of every kind."""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from autogradviz.events import EVENT_TYPES, Event

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def values_of(hint: Any, ints: st.SearchStrategy[int]) -> st.SearchStrategy[Any]:
    """Return all values of an annotation in ``events/``."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return st.one_of(values_of(part, ints) for part in get_args(hint))
    if origin is tuple:
        return st.lists(values_of(get_args(hint)[0], ints), max_size=4).map(tuple)
    if origin is Literal:
        return st.sampled_from(get_args(hint))
    return {
        int: ints,
        float: st.floats(allow_nan=False),
        str: TEXTS,
        bool: st.booleans(),
        types.NoneType: st.none(),
    }[hint]


def events_of(kind: type[Event], ints: st.SearchStrategy[int]) -> st.SearchStrategy[Event]:
    """Return all events of one kind whose integers come from ``ints``."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{name: values_of(hint, ints) for name, hint in hints.items()})


def any_events(
    ints: st.SearchStrategy[int], *, but: type[Event] = Event
) -> st.SearchStrategy[Event]:
    """Return events of every kind, except ``but``."""
    return st.one_of(events_of(kind, ints) for kind in EVENT_TYPES if kind is not but)
