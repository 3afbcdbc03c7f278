"""The part of a recording that happened in some modules."""

from __future__ import annotations

from bisect import bisect_right
from fnmatch import fnmatchcase
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from autogradviz.event_log.log import Log
from autogradviz.events import (
    EVENT_TYPES,
    GradAccumulated,
    HookRan,
    ModuleEntered,
    ModuleExited,
    ModuleSeen,
    MutationCloned,
    NodeFinished,
    NodeSeen,
    NodeStarted,
    OpCalled,
    RecorderLimited,
    RecordingEnded,
    SlotSeen,
    TensorReleased,
    TensorSaved,
    TensorUnpacked,
    VersionBumped,
    field_names,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.event_log.rows import Row
    from autogradviz.events import Event

_OF_NODES: Final = (NodeStarted, NodeFinished, GradAccumulated, HookRan)
_OF_SAVES: Final = (SlotSeen, TensorUnpacked, TensorReleased)
_OF_OPS: Final = (VersionBumped, MutationCloned)


def within(log: Log, pattern: str) -> Log:
    """Return a log of what happened in modules whose qualified name, or a parent's, fits.

    Operators, nodes, saves and what became of them are left out elsewhere; definitions,
    backwards, regions and errors stay.

    Args:
        log: a recording.
        pattern: a name as "h.3.attn"; ``*`` stands for anything, as in "h.*.attn".
    """
    calls, spans = _find_calls(log, _find_modules(log, pattern))
    nodes = _find_nodes(log, spans)
    ops = {op.seq for op in log.of(OpCalled) if op.call_id in calls or op.node_id in nodes}
    saves = {
        event.saved_id
        for event in log.of(TensorSaved)
        if event.node_id in nodes or (event.node_id is None and spans.hold(event.sequence_nr))
    }
    keeps: dict[type[Event], Callable[[Row], bool]] = {
        OpCalled: lambda row: row[0] in ops,
        NodeSeen: _by_field(NodeSeen, "node_id", nodes),
        TensorSaved: _by_field(TensorSaved, "saved_id", saves),
        ModuleEntered: _by_field(ModuleEntered, "call_id", calls),
        ModuleExited: _by_field(ModuleExited, "call_id", calls),
        RecordingEnded: lambda _: False,
        **{kind: _by_field(kind, "node_id", nodes) for kind in _OF_NODES},
        **{kind: _by_field(kind, "saved_id", saves) for kind in _OF_SAVES},
        **{kind: _by_field(kind, "op_seq", {None, *ops}) for kind in _OF_OPS},
    }
    part = Log()
    for kind in EVENT_TYPES:
        keep = keeps.get(kind)
        part.extend_rows(kind, log.rows(kind) if keep is None else filter(keep, log.rows(kind)))
    _end(part, log, f"only what happened in modules named {pattern!r} is here")
    return part


def _by_field(kind: type[Event], name: str, wanted: Any) -> Callable[[Row], bool]:
    place = field_names(kind).index(name)
    return lambda row: row[place] in wanted


def _find_modules(log: Log, pattern: str) -> set[int]:
    def fits(name: str) -> bool:
        parts = name.split(".")
        return any(fnmatchcase(".".join(parts[:n]), pattern) for n in range(1, len(parts) + 1))

    return {event.module_id for event in log.of(ModuleSeen) if fits(event.module_name)}


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
        """Return whether a number lies in one of the ranges."""
        return number is not None and bisect_right(self._edges, number) % 2 == 1


def _find_calls(log: Log, modules: set[int]) -> tuple[set[int], _Spans]:
    """Return the calls of some modules and all calls inside them, and the nodes' numbers."""
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
    """Return the nodes that were made in the modules, and the leaves that they lead to."""
    made = [event for event in log.of(NodeSeen) if spans.hold(event.sequence_nr)]
    below = set(chain.from_iterable(event.next_node_ids for event in made))
    leaves = {
        event.node_id
        for event in log.of(NodeSeen)
        if event.sequence_nr is None and event.node_id in below
    }
    return {event.node_id for event in made} | leaves


def _end(part: Log, log: Log, words: str) -> None:
    """Say what the part lacks, and end it where the whole ends."""
    for row in log.rows(RecordingEnded):
        seq, time_ns, thread = row[:3]
        part.extend_rows(RecorderLimited, [(seq, time_ns, thread, None, "within", words)])
        part.extend_rows(RecordingEnded, [(seq + 1, time_ns, thread, None, len(part))])
    part.problem = log.problem
