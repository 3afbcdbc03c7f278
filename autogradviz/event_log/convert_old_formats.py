"""Conversion of files of format versions 1 and 2, in which some events packed facts into text.

=============================== ==================================== ============================
event                           version 2                            version 3
=============================== ==================================== ============================
StateChanged, EffectRepeated    ``state_name="cache['k'].x"``        ``state_path``
StateChanged, EffectRepeated    ``before="float32 2×4 #12 v3"``      ``value_kind``, numbers, ids,
                                                                     versions, ``change_kind``
ModeChanged                     ``mode="autocast cpu"``              ``mode``, ``device_type``
RegionCutOff                    ``message="arguments"``              ``cut_off``
ContextTensorKept               ``slot="ctx.mask"``                  ``attribute``
RecorderFailed, RecorderLimited another column                       ``hook_point``
=============================== ==================================== ============================
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa

from autogradviz.event_log.arrow_arrays import make_array
from autogradviz.event_log.rows_to_arrow import DamagedError, schema
from autogradviz.event_log.state_value_diff import ABSENT, ALIVE, DEAD, StateValue, change_fields
from autogradviz.events import StateChange, field_names, path_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.events import ValueKind

    Fields: TypeAlias = dict[str, Any]

FORMAT_VERSION: Final = 2

REMOVED: Final = {"state_name": pa.string(), "seam": pa.string()}
"""Columns that version 3 does not have."""

_STEP: Final = re.compile(r"""\[(?:'[^']*'|"[^"]*"|[^\[\]]*)\]|[^.\[\]]+""")
_TENSOR: Final = re.compile(
    r"(\w+ (?:[\d×]+|scalar)(?: [a-z]+(?::\d+)?)?) ?(?:#(\d+))? v(\d+)(, requires grad)?"
)
_OBJECT: Final = re.compile(r"(\w+) #(\d+)")
_ARRAY: Final = re.compile(r"\S+ \S+ [0-9a-f]{8}")
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?")
_COUNTS: Final[tuple[tuple[ValueKind, re.Pattern[str]], ...]] = (
    ("container", re.compile(r"len (\d+)\b.*", re.DOTALL)),
    ("cache", re.compile(r"(\d+) cached")),
    ("hooks", re.compile(r"(\d+) hooks")),
    ("iterator", re.compile(r"(\d+) left")),
)
_ITERATOR: Final = re.compile(r"finished|at line \d+, step -?\d+|(count|repeat)\(.*\)", re.DOTALL)
_MODES_WITH_NAMES: Final = frozenset(
    {"torch function modes", "torch dispatch modes", "attention backends", "default dtype",
     "float32 matmul precision"}
)  # fmt: skip


def upgrade(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of version 1 or 2 with the columns of version 3.

    Raises:
        DamagedError: if an event lacks a value that it has in every recording.
        pyarrow.ArrowInvalid: if the buffers contradict each other.
    """
    batch.validate(full=True)
    kinds = batch.column("kind").to_pylist()
    if _CONVERTERS.keys().isdisjoint(kinds):
        return batch
    known = set(batch.schema.names)
    old = {name: batch.column(name).to_pylist() for name in _READ & known}
    new = {name: old.get(name, [None] * len(batch)).copy() for name in _WRITTEN}
    for index, kind in enumerate(kinds):
        if kind in _CONVERTERS:
            row = {name: values[index] for name, values in old.items()}
            for name, value in _CONVERTERS[kind](row).items():
                new[name][index] = value
    columns = [
        make_array(new[column.name], column.type)
        if column.name in new
        else batch.column(column.name)
        if column.name in known
        else pa.nulls(len(batch), column.type)
        for column in schema()
    ]
    return pa.record_batch(columns, schema=schema())


def _text(row: Fields, name: str) -> str:
    value = row.get(name)
    if value is None:
        message = f"an event without {name}"
        raise DamagedError(message)
    return str(value)


def _state_change(row: Fields) -> Fields:
    kind, name = _text(row, "state_kind"), _text(row, "state_name")
    before, after = (read_text(_text(row, side), kind, name) for side in ("before", "after"))
    values = dict(zip(_TYPED, change_fields(before, after), strict=True))
    return {**values, "before": row["before"], "after": row["after"],
            "state_path": read_path(name) if kind == "object" else (name,)}  # fmt: skip


def _mode_changed(row: Fields) -> Fields:
    mode, _, device_type = _text(row, "mode").partition(" ")
    if device_type == "cache":
        return {"mode": "autocast_cache"}
    return {"mode": mode, "device_type": device_type or None}


def _region_cut_off(row: Fields) -> Fields:
    return {"cut_off": _text(row, "message")}


def _context_tensor_kept(row: Fields) -> Fields:
    return {"attribute": _text(row, "slot").removeprefix("ctx.")}


def _hook_point(row: Fields) -> Fields:
    return {"hook_point": _text(row, "seam")}


def read_path(name: str) -> tuple[str, ...]:
    """Return ``("cache", "['k']", "x")`` of "cache['k'].x"; an unusual name is one step."""
    name = name.replace(".[", "[")
    path = tuple(_STEP.findall(name))
    return path if path_text(path) == name else (name,)


def read_text(text: str, state_kind: str, name: str) -> StateValue | None:
    """Return the reading that a text of version 2 stands for, None if the state was absent."""
    found: StateValue | None
    if text == ABSENT:
        found = None
    elif state_kind == "context":
        names = tuple(text.split(", ")) if name in _MODES_WITH_NAMES and text != "none" else ()
        found = StateValue("mode", text, names=names)
    elif state_kind == "random" or text.startswith("state "):
        found = StateValue("rng", text)
    elif text in {DEAD, ALIVE}:
        found = StateValue("weak_reference", text)
    else:
        found = _read_counted(text) or _read_object(text) or StateValue("plain", text)
    return found


def _read_counted(text: str) -> StateValue | None:
    if _NUMBER.fullmatch(text):
        return StateValue("plain", text, float(text))
    for kind, pattern in _COUNTS:
        found = pattern.fullmatch(text)
        if found is not None:
            return StateValue(kind, text, float(found[1]))
    return StateValue("iterator", text) if _ITERATOR.fullmatch(text) else None


def _read_object(text: str) -> StateValue | None:
    tensor, other = _TENSOR.fullmatch(text), _OBJECT.fullmatch(text)
    if tensor is not None:
        memory = None if tensor[2] is None else int(tensor[2])
        return StateValue(
            "tensor", tensor[1], object_id=memory, version=int(tensor[3]),
            requires_grad=tensor[4] is not None,
        )  # fmt: skip
    if other is not None:
        return StateValue("object", other[1], object_id=int(other[2]))
    return StateValue("array", text) if _ARRAY.fullmatch(text) else None


_CONVERTERS: Final[dict[str, Callable[[Fields], Fields]]] = {
    "StateChanged": _state_change,
    "EffectRepeated": _state_change,
    "ModeChanged": _mode_changed,
    "RegionCutOff": _region_cut_off,
    "ContextTensorKept": _context_tensor_kept,
    "RecorderFailed": _hook_point,
    "RecorderLimited": _hook_point,
}
_names = field_names(StateChange)
_TYPED: Final = _names[_names.index("value_kind") : _names.index("before_names") + 1]
"""The fields that ``change_fields`` returns."""

_WRITTEN: Final = frozenset(
    {*_TYPED, "state_path", "mode", "device_type", "cut_off", "attribute", "hook_point"}
)
_READ: Final = _WRITTEN | {"state_kind", "state_name", "message", "slot", "seam"}
