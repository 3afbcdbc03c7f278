"""The part of a recording that happened in some modules."""

from __future__ import annotations

from bisect import bisect_right
from fnmatch import fnmatchcase
from itertools import chain
from typing import TYPE_CHECKING

from autogradviz.event_log.log import Log
from autogradviz.events import (
    EVENT_TYPES,
    ModuleEntered,
    ModuleExited,
    ModuleSeen,
    NodeSeen,
    OpCalled,
    RecorderLimited,
    RecordingEnded,
    TensorSaved,
)
from autogradviz.events.field_types import traits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from autogradviz.event_log.uncompressed_rows import Row
    from autogradviz.events import Event
    from autogradviz.events.field_types import Target


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
