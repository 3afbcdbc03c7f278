"""Properties of the event schema that readers rely on."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from types import NoneType, UnionType
from typing import Union, get_args, get_origin, get_type_hints

import pytest

from autogradviz.events import EVENT_TYPES, Event, RecordingEnded, field_names
from autogradviz.events.field_types import traits


def test_field_has_the_same_type_in_every_event():
    types = {}
    for kind in EVENT_TYPES:
        for name, hint in get_type_hints(kind).items():
            # The file has one column per name; None is a null in any column.
            parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
            types.setdefault(name, set()).update(part for part in parts if part is not NoneType)
    assert {name: found for name, found in types.items() if len(found) > 1} == {}


def test_no_field_is_named_like_the_kind_column():
    assert [kind for kind in EVENT_TYPES if "kind" in field_names(kind)] == []


def test_every_event_is_listed_once():
    names = sorted(kind.__name__ for kind in EVENT_TYPES)
    # slots=True creates each class twice, so each subclass is listed twice.
    below = list(_below(Event))
    bases = {base.__name__ for kind in below for base in kind.__bases__}
    assert names == sorted({kind.__name__ for kind in below} - bases)


def _below(kind):
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


PLAIN_NUMBERS = {
    "seq", "time_ns", "thread", "started_at_ns", "event_count", "step", "lineno", "cell", "shape",
    "nbytes", "storage_nbytes", "duration_ns", "recorder_ns", "sequence_nr", "next_inputs",
    "position", "version",
    "seen_version", "input_versions", "output_versions", "input_hashes", "output_hashes",
    "saved_hash", "seen_hash", "content_hash", "nan_count", "infinity_count", "op_count",
    "caller_lines", "policy_count", "code_line", "recompile_count", "recompile_limit",
    "aot_number", "checkpoint_number", "packed_nbytes", "saved_versions", "rank", "world_size",
    "local_rank", "pid", "restart_count", "group_ranks", "mesh_ranks", "mesh_shape",
    "mesh_coordinates",
    "requested_nbytes", "capacity_nbytes", "allocated_nbytes", "free_nbytes", "state_nbytes",
    "step_ops", "step_digest", "group_number", "bucket", "bucket_nbytes", "bucket_cap_nbytes",
    "unsharded_nbytes", "gradient_count", "steps", "node_facts", "edge_facts", "leaf_facts",
    "unverified_count", "strides", "storage_offset", "address", "wall_ns",
    "stream", "device_start_ns", "device_end_ns", "submitted_start_ns", "submitted_end_ns",
    "clock_start_ns", "clock_end_ns", "other_stream",
    "reading", "held_nbytes", "entries", "count",
}  # fmt: skip
TEXT_IDS = {"compile_id", "failed_compile_id"}
"""PyTorch's own names of compilations, which are text and refer to no definition."""


@pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda kind: kind.__name__)
def test_every_integer_field_is_a_reference_or_a_plain_number(kind):
    whole = {name for name, hint in get_type_hints(kind).items() if int in {hint, *get_args(hint)}}
    declared = {each.name for each in traits(kind).references}
    assert whole - PLAIN_NUMBERS == declared
    assert {name for name in field_names(kind) if name.endswith(("_id", "_ids"))} <= (
        declared | TEXT_IDS
    )


@pytest.mark.parametrize("kind", EVENT_TYPES, ids=lambda kind: kind.__name__)
def test_event_defines_one_id_or_a_value(kind):
    defines = traits(kind).defines
    assert set(defines) <= set(field_names(kind))
    refers = [each for each in traits(kind).references if each.name in defines]
    assert len(refers) == (1 if len(defines) == 1 and refers else 0)
    assert not any(each.many for each in refers)


def test_every_event_has_a_docstring_and_the_same_first_fields():
    assert [kind for kind in EVENT_TYPES if not kind.__doc__] == []
    assert {field_names(kind)[:4] for kind in EVENT_TYPES} == {
        ("seq", "time_ns", "thread", "stack_id")
    }


def test_events_are_immutable():
    event = RecordingEnded(seq=0, time_ns=0, thread=0, stack_id=None, event_count=0, recorder_ns=0)
    with pytest.raises(FrozenInstanceError):
        event.event_count = 1
