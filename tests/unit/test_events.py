"""What every part relies on when it reads events."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from types import NoneType, UnionType
from typing import Union, get_args, get_origin, get_type_hints

import pytest

from autogradviz.events import EVENT_TYPES, Event, RecordingEnded, field_names


def test_fields_of_one_name_have_one_type_in_every_event():
    types = {}
    for kind in EVENT_TYPES:
        for name, hint in get_type_hints(kind).items():
            # The file has one column a name; None is a null in any column.
            parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
            types.setdefault(name, set()).update(part for part in parts if part is not NoneType)
    assert {name: found for name, found in types.items() if len(found) > 1} == {}


def test_no_field_is_called_like_the_column_of_kinds():
    assert [kind for kind in EVENT_TYPES if "kind" in field_names(kind)] == []


def test_every_event_is_listed_once():
    names = sorted(kind.__name__ for kind in EVENT_TYPES)
    # Slots make a class anew, so each subclass is there twice.
    assert names == sorted({kind.__name__ for kind in Event.__subclasses__()})


def test_every_event_says_what_it_means_and_begins_with_its_number():
    assert [kind for kind in EVENT_TYPES if not kind.__doc__] == []
    assert {field_names(kind)[:4] for kind in EVENT_TYPES} == {
        ("seq", "time_ns", "thread", "stack_id")
    }


def test_events_cannot_be_changed():
    event = RecordingEnded(seq=0, time_ns=0, thread=0, stack_id=None, event_count=0)
    with pytest.raises(FrozenInstanceError):
        event.event_count = 1
