"""Conversion of a scene to columns, the payload that the viewer reads.

    {"schema": 1,
     "strings": ["", "softmax", ...],
     "string_columns": {"nodes": ["op", "name", ...], ...},
     "summary": {"title": "...", ...},
     "nodes": {"op": [1, 1, 7, ...], "state": [...], ...}, ...}

Each table of the scene becomes one object of columns, in the order of the schema's fields. A
column named in ``string_columns`` holds indices into ``strings``. The ``cells`` of groups become
two columns, ``cells_kind`` (indices into ``strings``) and ``cells_ref``; their ``links`` become
one column for each field of a link, ``links_path`` and so on. Booleans are 0 and 1.

In a packed payload each column is text:

    [...]            the values as JSON
    c[...]           a value that all rows have, and the number of rows
    d[...]           of numbers: the first one, then the differences between successive ones
    l[[...],[...]]   of lists of numbers: the lengths of the lists, then all numbers as after d
    r[...];[...]     of lists of numbers, also nested: the JSON of each row, so that a reader parses
                     only the rows that it reads

Instead of any of these lists of numbers, a column without "c" and "r" may have {"runs": [...]}:
each value that follows itself, and how often.

Large tables of the memory view are not in a packed payload itself, but in its ``later``: a JSON
object of them in zlib format and base64, which is decoded when that view is shown.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import fields
from itertools import chain, groupby
from operator import attrgetter, ne, sub
from typing import TYPE_CHECKING, Any, Final, Literal, get_origin, get_type_hints

from autogradviz.scene import schema
from autogradviz.support.locks_gc_and_stderr import collector_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from autogradviz.scene.schema import Scene

PAYLOAD_SCHEMA: Final = 1
"""1: the first."""

_dump: Final = json.JSONEncoder(separators=(",", ":")).encode
_LEVEL: Final = 4
"""Of compression: level 6 takes three times as long for 4 % less."""

_JUDGED: Final = 1_000
"""Numbers of a column that decide whether it holds differences."""

_LONG: Final = 4
"""The average length of runs from which only their values and lengths are written."""

_MANY_ROWS: Final = 2_000
"""Of saves; with fewer, nothing is decoded later."""

_LATER: Final = ("held_saves", "storage_sizes")
"""Tables that only the memory view reads."""

_BY_ROW: Final = frozenset(
    ("groups", column)
    for column in ["cells_ref", "cells_kind", "rows"]
    + [f"links_{f.name}" for f in fields(schema.Link)]
)
"""Columns of which few rows are read: most groups are closed."""

TABLES: Final[dict[str, type[Any]]] = {
    "groups": schema.SceneGroup,
    "nodes": schema.SceneNode,
    "edges": schema.SceneEdge,
    "detaches": schema.SceneDetach,
    "saved_badges": schema.SavedTensorBadge,
    "parameter_badges": schema.ParameterBadge,
    "unused_parameters": schema.SceneUnusedParameter,
    "facts": schema.SceneFact,
    "checks": schema.SceneCheckGroup,
    "evidence": schema.SceneEvidence,
    "findings": schema.SceneFinding,
    "regions": schema.SceneRegion,
    "diffs": schema.SceneDiffRow,
    "spans": schema.SceneSpan,
    "memory": schema.SceneMemory,
    "memory_without_checkpoints": schema.SceneMemory,
    "live_memory": schema.SceneLiveMemory,
    "live_points": schema.SceneLivePoint,
    "lines": schema.SceneLine,
    "steps": schema.SceneStep,
    "call_frames": schema.SceneCallFrame,
    "call_times": schema.SceneCallTime,
    "storages": schema.SceneStorage,
    "counted_storages": schema.SceneCountedStorage,
    "saved_kinds": schema.SceneSavedKind,
    "folds": schema.SceneFold,
    "ribbons": schema.SceneRibbon,
    "fold_bars": schema.SceneFoldBar,
    "storage_events": schema.SceneStorageEvent,
    "slot_reasons": schema.SceneSlotReason,
    "module_calls": schema.SceneModuleCall,
    "budget_plans": schema.SceneBudgetPlan,
    "held_saves": schema.SceneHeldSave,
    "storage_sizes": schema.SceneStorageSize,
    "comparison_rows": schema.SceneComparisonRow,
    "compared_texts": schema.SceneComparedText,
    "changes": schema.SceneChange,
    "saved_diffs": schema.SceneSavedDiff,
    "compiled_regions": schema.SceneCompiledRegion,
    "compiled_pictures": schema.SceneCompiledPicture,
    "compiled_marks": schema.SceneCompiledMark,
    "compiled_items": schema.SceneCompiledItem,
    "compiled_slots": schema.SceneCompiledSlot,
    "compiled_steps": schema.SceneCompiledStep,
    "cause_steps": schema.SceneCauseStep,
    "audit_entries": schema.SceneAuditEntry,
    "answers": schema.SceneAnswer,
    "questions": schema.SceneQuestion,
    "stories": schema.SceneStory,
}


@collector_waiting()
def to_payload(scene: Scene) -> dict[str, Any]:
    """Return a scene as plain lists, numbers and text, ready for JSON."""
    strings: dict[str, int] = {"": 0}
    payload: dict[str, Any] = {"schema": PAYLOAD_SCHEMA, "strings": [], "string_columns": {}}
    payload["summary"] = {f.name: getattr(scene.summary, f.name) for f in fields(scene.summary)}
    payload["summary"]["notices"] = list(scene.summary.notices)
    payload["summary"]["idle_ns"] = list(scene.summary.idle_ns)
    for name, kind in TABLES.items():
        table, named = _columns(getattr(scene, name), kind, strings)
        payload[name] = table
        payload["string_columns"][name] = named
    payload["strings"] = list(strings)
    return payload


@collector_waiting()
def pack(scene: Scene) -> bytes:
    """Return the payload of a scene as JSON in zlib format.

    Each column is text inside the JSON, so that the viewer parses only the columns that it reads:
    half of the values are of views that are not on display. Large tables of the memory view are
    compressed by themselves. Ids and times ascend, so that their differences are short.
    """
    payload = to_payload(scene)
    for name, kind in TABLES.items():
        types = {f.name: str(f.type) for f in fields(kind)}
        payload[name] = {
            column: pack_column(values, types.get(column, ""), by_row=(name, column) in _BY_ROW)
            for column, values in payload[name].items()
        }
    if len(scene.held_saves) > _MANY_ROWS:
        later = {name: payload.pop(name) for name in _LATER}
        payload["later"] = base64.b64encode(_compress(later)).decode()
    return _compress(payload)


def _compress(value: object) -> bytes:
    return zlib.compress(_dump(value).encode(), _LEVEL)


def pack_column(values: list[Any], annotation: str, *, by_row: bool = False) -> str:
    """Return a column as text; see the beginning of this module."""
    if values and values.count(values[0]) == len(values):
        return f"c{_dump([values[0], len(values)])}"
    if by_row and values:
        return f"r{';'.join(map(_dump, values))}"
    if annotation in {"int", "int | None"} and None not in values and _are_similar(values):
        return f"d{_dump_runs(_differences(values))}"
    if annotation == "tuple[int, ...]":
        numbers = list(chain.from_iterable(values))
        if _are_similar(numbers):
            return f"l[{_dump_runs(list(map(len, values)))},{_dump_runs(_differences(numbers))}]"
    return _dump(values) if values and isinstance(values[0], list) else _dump_runs(values)


def _dump_runs(values: list[Any]) -> str:
    """Return values as JSON, those that repeat once with their number."""
    first = values[:_JUDGED]
    if _LONG * sum(map(ne, first, first[1:])) >= len(first):
        return _dump(values)
    runs = [part for value, run in groupby(values) for part in (value, sum(1 for _ in run))]
    return _dump({"runs": runs})


def _are_similar(numbers: list[int]) -> bool:
    """Return whether the first of successive numbers differ by much less than they are large."""
    first = numbers[:_JUDGED]
    return 2 * sum(map(abs, _differences(first)[1:])) < sum(map(abs, first))


def _differences(numbers: list[int]) -> list[int]:
    """Return the first number, and the differences between successive ones."""
    return [*numbers[:1], *map(sub, numbers[1:], numbers)]


def _columns(
    rows: tuple[Any, ...], kind: type[Any], strings: dict[str, int]
) -> tuple[dict[str, list[Any]], list[str]]:
    """Return the columns of a table, and the names of those that hold strings."""
    table: dict[str, list[Any]] = {}
    named: list[str] = []
    hints = get_type_hints(kind)
    for f in fields(kind):
        values = list(map(attrgetter(f.name), rows))
        if f.name == "cells":
            kinds = [list(map(attrgetter("kind"), v)) for v in values]
            _intern(chain.from_iterable(kinds), strings)
            table["cells_kind"] = [list(map(strings.__getitem__, v)) for v in kinds]
            table["cells_ref"] = [list(map(attrgetter("ref"), v)) for v in values]
            named.append("cells_kind")
        elif f.name == "links":
            for part in fields(schema.Link):
                read = attrgetter(part.name)
                convert = {"tuple[int, ...]": list, "bool": int}.get(str(part.type))
                parts = [map(read, v) for v in values]
                table[f"links_{part.name}"] = [
                    list(v if convert is None else map(convert, v)) for v in parts
                ]
        elif _is_text(hints[f.name]):
            _intern(values, strings)
            table[f.name] = list(map(strings.__getitem__, values))
            named.append(f.name)
        else:
            table[f.name] = _CONVERTERS.get(str(f.type), _plain_all)(values)
    return table, named


def _is_text(hint: object) -> bool:
    """Return whether a field holds text: any text, or one of some literals."""
    return hint is str or get_origin(hint) is Literal


def _intern(values: Iterable[str], strings: dict[str, int]) -> None:
    """Number the texts that have no number yet, in their order."""
    for value in dict.fromkeys(values):
        strings.setdefault(value, len(strings))


def _lists(values: list[Any]) -> list[Any]:
    return list(map(list, values))


def _nested_lists(values: list[Any]) -> list[Any]:
    return [list(map(list, value)) for value in values]


def _flags(values: list[Any]) -> list[Any]:
    return list(map(int, values))


def _lengths(values: list[Any]) -> list[Any]:
    short = {value: _plain(value) for value in set(values)}  # most boxes are as wide as others
    return list(map(short.__getitem__, values))


def _norms(values: list[Any]) -> list[Any]:
    """Return norms with four digits, at any magnitude."""
    return [None if value is None else float(f"{value:.4g}") for value in values]


def _plain_all(values: list[Any]) -> list[Any]:
    return list(map(_plain, values))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        short = round(value, 1)
        return int(short) if short == int(short) else short
    return value


_CONVERTERS: Final[dict[str, Callable[[list[Any]], list[Any]]]] = {
    "int": list,
    "int | None": list,
    "bool": _flags,
    "float": _lengths,
    "float | None": _norms,
    "tuple[int, ...]": _lists,
    "tuple[str, ...]": _lists,
    "tuple[tuple[int, ...], ...]": _nested_lists,
}
"""The conversion of the values of a column, by the annotation of its field."""
