"""Training steps of a recording: how many there are, where each begins and ends, and its loss.

The recorder ends a part whenever an optimizer has stepped after a backward, and without an
optimizer after each backward, since it cannot know what follows
(``recorder/backward/training_steps.py``). Every reader counts steps, which consist of parts.

NOTE [ Rounds of several optimizers ]
A loop that steps several optimizers, such as that of a GAN, ends two or more parts in each round.
Which tensors each of them updated is recorded, so a round is the shortest sequence of parts that
repeats, if it repeats or if its optimizers share no tensor; a round is one step. Where older parts
were dropped, it is unknown with which of them a round begins, and each part is a step.

NOTE [ The last step ]
What follows the last part is a step that did not end if it is more than reading results: a backward
or a collective was called, an exception left the block, or an op outside of the optimizer created a
node. An evaluation without gradients belongs to no step.

NOTE [ The loss of a step ]
It is the number from which the step's last backward began, as it was read when the step ended. On
an accelerator, reading it then would wait; if the recording has the norm of that root, the loss is
the norm. A backward inside another one begins at no loss.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Final, NamedTuple, overload

from autogradviz.event_log.filter_and_redact import DEFINITIONS, PASSING, defined, used_ids
from autogradviz.event_log.log import Log, rows_of_segment
from autogradviz.event_log.rows_as_named_tuples import last_ns, rows_of
from autogradviz.event_log.stacks import Stacks
from autogradviz.events import (
    EVENT_TYPES,
    BackwardEnded,
    BackwardStarted,
    CollectiveCalled,
    ErrorRaised,
    Event,
    LossRead,
    ModuleEntered,
    ModuleSeen,
    NormRead,
    OpCalled,
    OptimizerStepped,
    ParameterSeen,
    RecordingEnded,
    StepEnded,
    field_names,
)
from autogradviz.events.field_types import traits
from autogradviz.support.locks_gc_rank_and_stderr import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


STEP_KINDS: Final[tuple[type[Event], ...]] = (
    StepEnded, OptimizerStepped, BackwardStarted, BackwardEnded, LossRead, NormRead,
    CollectiveCalled, ErrorRaised,
)  # fmt: skip
"""The kinds of events that steps are computed from, but for ops after the last part."""

NO_END: Final = 2**62
"""The end of a step that did not end, larger than every number of an event."""

MAX_ROUND: Final = 64
"""Maximum number of parts in a round."""

_FIELDS: Final = field_names(OpCalled)
_SEQ, _NUMBER, _STACK = (_FIELDS.index(name) for name in ("seq", "sequence_nr", "stack_id"))


class Part(NamedTuple):
    """A part of a step: what the recorder ended as one, from the end of the part before."""

    number: int  # from 0
    seq: int  # of the event that records the end: digests are taken there
    end_seq: int  # of the first event after the part
    end_ns: int
    ops: int | None
    digest: int | None


class Step(NamedTuple):
    """One training step."""

    number: int  # from 0; the first one is larger if older steps were dropped
    start_seq: int  # of its first event
    end_seq: int  # of the first event after it, NO_END in the last step if events follow its parts
    start_ns: int
    end_ns: int
    ended: bool  # all optimizers of its round have stepped
    parts: tuple[Part, ...]
    optimizers: tuple[int, ...]  # numbers of the events of steps of optimizers
    backwards: tuple[int, ...]  # ids of its outermost backwards
    losses: tuple[float | None, ...]  # of its backwards, None if NaN or infinite

    @property
    def loss(self) -> float | None:
        """The loss; None if it is unknown, or not finite."""
        return self.losses[-1] if self.losses else None


class TrainingSteps(Sequence[Step]):
    """The steps of a log, oldest first.

    Attributes:
        parts: what the recorder ended.
        round_length: the number of parts in a step.
    """

    def __init__(self, log: Log, rest_from: Callable[[int], Log] | None = None) -> None:
        """Read them.

        Args:
            log: events of ``STEP_KINDS``, or all events.
            rest_from: returns all events from one on, if ``log`` does not have them.
        """
        self._log = log
        log.decode(*STEP_KINDS)
        backward_ends = log.column(BackwardEnded, "seq"), log.column(BackwardEnded, "time_ns")
        self.parts = tuple(
            Part(
                end.step,
                end.seq,
                end.end_seq,
                end.time_ns if end.end_seq > end.seq else _time_of(backward_ends, end),
                end.step_ops,
                end.step_digest,
            )
            for end in rows_of(log, StepEnded)
        )
        self._part_ends = [part.end_seq for part in self.parts]
        self.round_length = _round_length(self._updated) if self.is_complete else 1
        last = self.parts[-1].end_seq if self.parts else 0
        self._has_rest = began_after(log if rest_from is None else rest_from(last), last)
        self._steps = self.grouped(self.round_length)
        self._seqs = [step.end_seq for step in self._steps]
        self._times = [step.end_ns for step in self._steps]

    @cached_property
    def is_complete(self) -> bool:
        """Whether no older parts were dropped."""
        return all(part.number == at for at, part in enumerate(self.parts))

    @cached_property
    def pattern(self) -> tuple[int, ...]:
        """For each part, the first one whose optimizers updated the same tensors."""
        first: dict[frozenset[int], int] = {}
        return tuple(first.setdefault(each, at) for at, each in enumerate(self._updated))

    @cached_property
    def _updated(self) -> list[frozenset[int]]:
        """The tensors that optimizers updated in each part."""
        return [
            frozenset(chain.from_iterable(tensor_ids for _, tensor_ids in events))
            for events in self._stepped[: len(self.parts)]
        ]

    @cached_property
    def _stepped(self) -> list[list[tuple[int, tuple[int, ...]]]]:
        """The steps of optimizers in each part, and after the last one.

        Those that step after the first optimizer of a part, before a backward, belong to it.
        """
        starts = [
            seq
            for seq, parent in self._log.fields(BackwardStarted, "seq", "parent_backward_id")
            if parent is None
        ]
        found: list[list[tuple[int, tuple[int, ...]]]] = [[] for _ in range(len(self.parts) + 1)]
        for event in self._log.fields(OptimizerStepped, "seq", "tensor_ids"):
            found[bisect_right(self._part_ends, event[0])].append(event)
        for at, end in enumerate(self._part_ends):
            begun = bisect_left(starts, end)
            until = starts[begun] if begun < len(starts) else NO_END
            follows = found[at + 1]
            most = len(follows) - (at + 1 < len(self.parts))  # the last one ended its part
            while most > 0 and found[at] and follows[0][0] < until:
                found[at].append(follows.pop(0))
                most -= 1
        return found

    def grouped(self, length: int) -> list[Step]:
        """Return the steps as if they had so many parts."""
        parts = self.parts
        groups = [parts[at : at + length] for at in range(0, len(parts), length)]
        ends = [group[-1].end_seq for group in groups]
        times = [group[-1].end_ns for group in groups]
        ended = [len(group) == length for group in groups]
        if self._has_rest:
            if not ended or ended[-1]:
                groups.append(())
                ends, times, ended = [*ends, 0], [*times, 0], [*ended, False]
            ends[-1], times[-1] = NO_END, last_ns(self._log)
        backwards, losses = self._backwards(ends)
        numbers = [part.number for part in parts] if length == 1 else [*range(len(groups))]
        numbers.append(numbers[-1] + 1 if numbers else 0)
        return [
            Step(
                number=numbers[at],
                start_seq=ends[at - 1] if at else 0,
                end_seq=ends[at],
                start_ns=times[at - 1] if at else 0,
                end_ns=times[at],
                ended=ended[at],
                parts=tuple(group),
                optimizers=tuple(
                    seq
                    for events in self._stepped[at * length :][: len(group) or 1]
                    for seq, _ in events
                ),
                backwards=tuple(backwards[at]),
                losses=tuple(losses[at]),
            )
            for at, group in enumerate(groups)
        ]

    def _backwards(self, ends: Sequence[int]) -> tuple[list[list[int]], list[list[float | None]]]:
        """Return the outermost backwards of each step, and their losses."""
        read: dict[int, list[float | None]] = defaultdict(list)
        for backward_id, loss in self._log.fields(LossRead, "backward_id", "loss"):
            read[backward_id].append(loss)
        norms: dict[int, list[float | None]] = defaultdict(list)
        for backward_id, place, norm in self._log.fields(NormRead, "backward_id", "place", "norm"):
            if place == "root":
                norms[backward_id].append(norm)
        backwards: list[list[int]] = [[] for _ in ends]
        losses: list[list[float | None]] = [[] for _ in ends]
        for each in rows_of(self._log, BackwardStarted):
            at = bisect_right(ends, each.seq)
            if each.parent_backward_id is None and at < len(ends):
                backwards[at].append(each.backward_id)
                losses[at] += read.get(each.backward_id) or norms.get(each.backward_id) or ()
        return backwards, losses

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Step]: ...
    def __getitem__(self, index: int | slice) -> Step | Sequence[Step]:
        """Return a step by its index, which differs from its number if steps were dropped."""
        return self._steps[index]

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def ended(self) -> list[Step]:
        """The steps that ended."""
        return [step for step in self._steps if step.ended]

    @property
    def ends(self) -> list[int]:
        """The ends of all steps in which an optimizer stepped: the numbers of the next events."""
        return [step.end_seq for step in self._steps if step.optimizers and step.end_seq < NO_END]

    def at(self, seq: int) -> int:
        """Return the index of the step that an event belongs to; after all steps, their number."""
        return bisect_right(self._seqs, seq)

    def number_at(self, seq: int) -> int:
        """Return the number of the step that an event belongs to, as if one followed the last."""
        at = self.at(seq)
        if at < len(self):
            return self[at].number
        return self[-1].number + 1 if self else 0

    def at_ns(self, time_ns: int) -> int:
        """Return the index of the step that was running at a time; the last one after it.

        What follows the last end is a step as well: a recording of which no step ended has one, 0.
        Only without any op or backward are there none, and the index is -1.
        """
        return min(bisect_left(self._times, time_ns), len(self._times) - 1)


def _time_of(backward_ends: tuple[list[int], list[int]], end: StepEnded) -> int:
    """Return when a part ended whose end was recorded later: with the backward before."""
    seqs, times = backward_ends
    at = bisect_left(seqs, end.end_seq)
    return times[at - 1] if at else end.time_ns


def _round_length(updated: Sequence[frozenset[int]]) -> int:
    """Return the number of parts in a round; see NOTE [ Rounds of several optimizers ]."""
    count = len(updated)
    if not all(updated) or len(set(updated)) == 1:
        return 1
    for length in range(2, min(count, MAX_ROUND) + 1):
        round_ = updated[:length]
        if any(updated[at] != updated[at - length] for at in range(length, count)):
            continue
        distinct = sum(map(len, round_)) == len(frozenset().union(*round_))
        if distinct or 2 * length <= count:
            return length
    return 1


def common_steps(*runs: TrainingSteps) -> list[list[Step]]:
    """Return the steps of several runs, with one number of parts in a step.

    A run that stopped early may not have repeated its round. If its optimizers stepped in the same
    order as in the longest one, as far as it went, its rounds are as long.
    """
    longest = max(runs, key=lambda each: len(each.parts))
    return [
        each.grouped(
            longest.round_length
            if each.is_complete and each.pattern == longest.pattern[: len(each.parts)]
            else each.round_length
        )
        for each in runs
    ]


def last_part(log: Log) -> int:
    """Return the number of the last part of a step that ended, -1 for none."""
    return max((number for (number,) in log.fields(StepEnded, "step")), default=-1)


def count_optimizer_calls(log: Log) -> int:
    """Return the number of steps of optimizers in a log."""
    return log.count(OptimizerStepped)


def began_after(log: Log, seq: int) -> bool:
    """Return whether a step began after an event; see NOTE [ The last step ]."""
    if any(log.column(kind, "seq")[-1:] >= [seq] for kind in _BEGINNINGS):
        return True
    made = {stack_id for number, stack_id in _ops_from(log, seq) if number is not None}
    return bool(made) and not all(map(Stacks(log).in_optimizer, made))


def _ops_from(log: Log, seq: int) -> Iterator[tuple[int | None, int | None]]:
    """Yield sequence number and stack of each op from an event on.

    Those that are not compressed are enough, unless the recording went on for long.
    """
    recent = log.recent(OpCalled)
    oldest = recent.rows(1)
    if oldest and oldest[0][_SEQ] < seq:
        for row in recent.newest(len(recent) - recent.find(seq)):
            yield row[_NUMBER], row[_STACK]
        return
    names = "seq", "sequence_nr", "stack_id"
    rows = zip(*(reversed(log.column(OpCalled, name)) for name in names), strict=True)
    for _, number, stack_id in takewhile(lambda row: row[0] >= seq, rows):
        yield number, stack_id


_BEGINNINGS: Final = (BackwardStarted, CollectiveCalled, ErrorRaised)


# --- the events of single steps of a recording that may still be written --------------------------


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
