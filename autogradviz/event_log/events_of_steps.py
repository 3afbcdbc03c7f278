"""The events of each step, collected while a recording is read, with what they refer to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.event_log.filter_and_redact import DEFINITIONS, PASSING, defined, used_ids
from autogradviz.event_log.log import Log, rows_of_segment
from autogradviz.events import (
    EVENT_TYPES,
    Event,
    ModuleEntered,
    ModuleSeen,
    ParameterSeen,
    RecordingEnded,
    field_names,
)
from autogradviz.events.field_types import traits
from autogradviz.support.locks_gc_and_stderr import new_lock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from autogradviz.event_log.log import Segment
    from autogradviz.event_log.uncompressed_rows import Row
    from autogradviz.events import Event

    RowsByKind = dict[type[Event], list[Row]]


_IN_EVERY_STEP: Final = tuple(
    kind
    for kind in EVENT_TYPES
    if (traits(kind).lasting and kind is not RecordingEnded)
    or kind in (ModuleSeen, ParameterSeen)
    or (kind in DEFINITIONS and defined(kind) is None)
)
"""Events that belong to each later step; there are few."""

_CALL_ID: Final = field_names(ModuleEntered).index("call_id")
_DECODED: Final = 3
"""Segments whose rows stay in memory: steps are read one after the other."""

_MAX_KNOWN: Final = 100_000
"""Definitions that stay in memory for the next steps."""


class StepEvents:
    """Builds the log of one step, with the definitions that its events refer to.

    Segments are added while the recording is written. Each step can be read at any time, by any
    thread.
    """

    def __init__(self) -> None:
        self._lock = new_lock()
        self._segments: list[tuple[int, int, Segment]] = []  # first event, last event
        self._decoded: dict[int, RowsByKind] = {}  # by position of the segment
        self._in_every_step: RowsByKind = {kind: [] for kind in _IN_EVERY_STEP}
        self._known: dict[type[Event], dict[int, list[Row]]] = {}

    def add(self, segment: Segment) -> RowsByKind:
        """Append a segment, and return its rows by kind."""
        rows: RowsByKind = {kind: [] for kind in EVENT_TYPES}
        for kind, part in rows_of_segment(segment, EVENT_TYPES):
            rows[kind] += part
        with self._lock:
            self._append(segment, rows)
        return rows

    def _append(self, segment: Segment, rows: RowsByKind) -> None:
        seqs = [row[0] for part in rows.values() for row in part]
        if seqs:
            self._remember(len(self._segments), rows)
            self._segments.append((min(seqs), max(seqs), segment))
        for kind, kept in self._in_every_step.items():
            kept.extend(rows[kind])

    def log_of(self, start: int, end: int) -> Log:
        """Return the log of the events from ``start`` to before ``end``.

        It has no end event; its graphs, saved tensors and versions from before are not in it.
        """
        with self._lock:
            return self._build(start, end)

    def _build(self, start: int, end: int) -> Log:
        part = Log()
        for kind, rows in self._in_every_step.items():
            part.extend_rows(kind, (row for row in rows if row[0] < end))
        inside = [
            position
            for position, (first, last, _) in enumerate(self._segments)
            if first < end and last >= start
        ]
        for position in inside:
            rows_by_kind = self._rows(position)
            for kind in PASSING:
                part.extend_rows(kind, (row for row in rows_by_kind[kind] if start <= row[0] < end))
        self._add_open_calls(part, start)
        self._add_definitions(part, inside)
        part.sort()
        return part

    def _rows(self, position: int) -> RowsByKind:
        if position not in self._decoded:
            rows: RowsByKind = {kind: [] for kind in EVENT_TYPES}
            for kind, found in rows_of_segment(self._segments[position][2], EVENT_TYPES):
                rows[kind] += found
            self._remember(position, rows)
        return self._decoded[position]

    def _remember(self, position: int, rows: RowsByKind) -> None:
        self._decoded[position] = rows
        while len(self._decoded) > _DECODED:
            del self._decoded[next(iter(self._decoded))]

    def _add_open_calls(self, part: Log, start: int) -> None:
        """Add the module calls that began before the step and contain a part of it."""
        missing = used_ids(part, "call") - {
            row[_CALL_ID] for row in part.recent(ModuleEntered).rows()
        }
        found: list[Row] = []
        names = field_names(ModuleEntered)
        parent = names.index("parent_call_id")
        for _, _, segment in reversed(self._segments):
            if not missing:
                break
            for _, rows in rows_of_segment(segment, [ModuleEntered]):
                for row in reversed(rows):  # a call follows the one that contains it
                    if row[_CALL_ID] in missing and row[0] < start:
                        found.append(row)
                        missing.discard(row[_CALL_ID])
                        if row[parent] is not None:
                            missing.add(row[parent])
        part.extend_rows(ModuleEntered, sorted(found))

    def _add_definitions(self, part: Log, inside: Collection[int]) -> None:
        for kind in DEFINITIONS:
            target = defined(kind)
            if target is None or kind in self._in_every_step:
                continue
            found = self._find_definitions(kind, used_ids(part, target), inside)
            known = self._known.setdefault(kind, {})
            if len(known) > _MAX_KNOWN:
                known.clear()
            known.update(found)
            part.extend_rows(kind, sorted(row for rows in found.values() for row in rows))

    def _find_definitions(
        self, kind: type[Event], ids: set[int], inside: Collection[int]
    ) -> dict[int, list[Row]]:
        """Return the rows of a kind that define some ids; several may define one."""
        (name,) = traits(kind).defines
        place = field_names(kind).index(name)
        found: dict[int, list[Row]] = {}

        def take(rows: Iterable[Row], wanted: set[int]) -> None:
            for row in rows:
                if row[place] in wanted:
                    found.setdefault(row[place], []).append(row)

        for position in inside:
            take(self._rows(position)[kind], ids)
        known = self._known.get(kind, {})
        for number in ids - found.keys():
            if number in known:
                found[number] = known[number]
        before = min(inside, default=0)
        for position in range(before - 1, -1, -1):
            missing = ids - found.keys()
            if not missing:
                break
            for _, rows in rows_of_segment(self._segments[position][2], [kind]):
                take(rows, missing)
        return found
