"""Parts of a recording: of some modules, without private text, with all that they refer to."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import astuple
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from autogradviz.event_log.log import Log
from autogradviz.events import (
    EVENT_TYPES,
    ErrorRaised,
    ModuleEntered,
    ModuleExited,
    ModuleSeen,
    NodeSeen,
    OpCalled,
    RecorderLimited,
    RecordingEnded,
    TensorSaved,
    field_names,
)
from autogradviz.events.field_types import traits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Mapping

    from autogradviz.event_log.uncompressed_rows import Row
    from autogradviz.events import BackwardRaised, Event
    from autogradviz.events.field_types import Privacy, Target


# --- the part of a recording that happened in some modules ----------------------------------------


def within(log: Log, pattern: str) -> Log:
    """Return a log of what happened in modules whose qualified name, or a parent's, matches.

    Events that refer to a module call, op, node or save elsewhere are left out; definitions,
    backwards, regions and errors are kept.

    Args:
        log: a recording.
        pattern: a name as "h.3.attn"; ``*`` matches any text, as in "h.*.attn".
    """
    calls, spans = _find_calls(log, _find_modules(log, pattern))
    nodes = _find_nodes(log, spans)
    ops = {op.seq for op in log.of(OpCalled) if op.call_id in calls or op.node_id in nodes}
    saves = {
        event.saved_id
        for event in log.of(TensorSaved)
        if event.node_id in nodes or (event.node_id is None and spans.hold(event.sequence_nr))
    }
    kept: dict[Target, set[int]] = {"call": calls, "node": nodes, "op": ops, "saved": saves}
    part = Log()
    for kind in EVENT_TYPES:
        if kind is not RecordingEnded:
            part.extend_rows(kind, filter(_is_kept(kind, kept), log.rows(kind)))
    _end(part, log, f"only what happened in modules named {pattern!r} is here")
    return part


def matches_module(log: Log, pattern: str) -> bool:
    """Return whether any module of a recording has a name that ``within`` keeps."""
    return bool(_find_modules(log, pattern))


def _is_kept(kind: type[Event], kept: Mapping[Target, Collection[int]]) -> Callable[[Row], bool]:
    """Return whether a row refers to kept calls, ops, nodes and saves only."""
    if kind is OpCalled:  # of a kept call, or of a kept node
        return lambda row: row[0] in kept["op"]
    wanted = [
        (each.place, kept[each.target])
        for each in traits(kind).references
        if each.target in kept and not each.many and each.name != "parent_call_id"
    ]
    if traits(kind).in_every_module or not wanted:
        return lambda _: True
    return lambda row: all(row[place] is None or row[place] in ids for place, ids in wanted)


def _find_modules(log: Log, pattern: str) -> set[int]:
    def matches(name: str) -> bool:
        parts = name.split(".")
        return any(fnmatchcase(".".join(parts[:n]), pattern) for n in range(1, len(parts) + 1))

    return {event.module_id for event in log.of(ModuleSeen) if matches(event.module_name)}


class _Spans:
    """Ranges of sequence numbers."""

    def __init__(self, spans: list[tuple[int, int]]) -> None:
        self._edges: list[int] = []
        for first, last in sorted(spans):
            if self._edges and first <= self._edges[-1]:
                self._edges[-1] = max(last, self._edges[-1])
            elif last > first:
                self._edges += [first, last]

    def hold(self, number: int | None) -> bool:
        """Return whether a number is in one of the ranges."""
        return number is not None and bisect_right(self._edges, number) % 2 == 1


def _find_calls(log: Log, modules: set[int]) -> tuple[set[int], _Spans]:
    """Return the calls of some modules, with all nested calls, and the ranges of their nodes."""
    inside: set[int] = set()
    began: dict[int, int] = {}
    for event in log.of(ModuleEntered):
        if event.module_id in modules or event.parent_call_id in inside:
            inside.add(event.call_id)
            began[event.call_id] = event.sequence_nr
    spans = [
        (began[event.call_id], event.sequence_nr)
        for event in log.of(ModuleExited)
        if event.call_id in began
    ]
    return inside, _Spans(spans)


def _find_nodes(log: Log, spans: _Spans) -> set[int]:
    """Return the nodes that were created in the modules, and the leaves that they lead to."""
    made = [event for event in log.of(NodeSeen) if spans.hold(event.sequence_nr)]
    below = set(chain.from_iterable(event.next_node_ids for event in made))
    leaves = {
        event.node_id
        for event in log.of(NodeSeen)
        if event.sequence_nr is None and event.node_id in below
    }
    return {event.node_id for event in made} | leaves


def _end(part: Log, log: Log, notice: str) -> None:
    """Add the end of the recording, and a notice of what was left out."""
    for row in log.rows(RecordingEnded):
        seq, time_ns, thread, *_, recorder_ns = row
        part.extend_rows(RecorderLimited, [(seq, time_ns, thread, None, "within", notice)])
        part.extend_rows(RecordingEnded, [(seq + 1, time_ns, thread, None, len(part), recorder_ns)])
    part.problem = log.problem


# --- A recording up to an exception that the program caught ---------------------------------------


def until_raised(log: Log, raised: BackwardRaised) -> Log:
    """Return a log as it would be if the exception of a backward had left the recording."""
    part = Log()
    part.problem = log.problem
    for kind in EVENT_TYPES:
        rows = log.rows(kind)
        if not (traits(kind).defines or traits(kind).lasting):
            rows = [row for row in rows if row[0] <= raised.seq]
        part.extend_rows(kind, rows)
    error = ErrorRaised(
        seq=raised.seq,
        time_ns=raised.time_ns,
        thread=raised.thread,
        stack_id=raised.stack_id,
        type_name=raised.type_name,
        message=raised.message,
        node_id=raised.node_id,
        backward_id=raised.backward_id,
    )
    part.extend_rows(ErrorRaised, [astuple(error)])
    return part


# --- A recording without its author's private text: source lines, values and folder names ---------


_PATH: Final = re.compile(
    r"(?:(?<![\w.])~|\b[A-Za-z]:|(?<![\w./\\]))(?:[/\\](?=\S)[^/\\\n:'\"<>|]+)+"
)
"""An absolute path: of Unix, of a home folder, of Windows."""

_PUBLIC: Final = re.compile(r"[/\\]((?:torch|autogradviz)[/\\].*)$")
"""The public end of a path, which identifies the frames of checkpoint."""


def redact(log: Log) -> Log:
    """Return a log without source text, values of variables and folder names.

    Fields are treated as their types in ``events/`` say; of any other text, absolute paths are
    reduced to their last part: "train.py".
    """
    redacted = Log()
    redacted.problem = None if log.problem is None else without_folders(log.problem)
    for kind in EVENT_TYPES:
        if not traits(kind).private:
            privacy = traits(kind).privacy
            redacted.extend_rows(kind, [_redact_row(row, privacy) for row in log.rows(kind)])
    return redacted


def _redact_row(row: Row, privacy: tuple[Privacy | None, ...]) -> Row:
    return tuple(_redact_value(value, private) for value, private in zip(row, privacy, strict=True))


def _redact_value(value: Any, private: Privacy | None) -> Any:
    if isinstance(value, tuple):
        if private == "value":
            return ()
        return tuple(map(without_folders, value)) if value and isinstance(value[0], str) else value
    if not isinstance(value, str):
        return None if private == "value" else value
    if private == "source":
        return ""
    return "…" if private == "value" else without_folders(value)


@cache
def without_folders(text: str) -> str:
    """Return text with each absolute path reduced to its last part."""
    return _PATH.sub(_last_part, text)


def _last_part(found: re.Match[str]) -> str:
    public = _PUBLIC.search(found[0])
    return f"…/{public[1]}" if public else re.split(r"[/\\]", found[0])[-1]


# --- the definitions that the events of a log refer to --------------------------------------------


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
