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

from autogradviz.event_log.rows_as_named_tuples import last_ns, rows_of
from autogradviz.event_log.stacks import Stacks
from autogradviz.events import (
    BackwardEnded,
    BackwardStarted,
    CollectiveCalled,
    ErrorRaised,
    Event,
    LossRead,
    NormRead,
    OpCalled,
    OptimizerStepped,
    StepEnded,
    field_names,
)

if TYPE_CHECKING:
    from autogradviz.event_log.log import Log
    from autogradviz.event_log.uncompressed_rows import Row
    from autogradviz.events import Event

    RowsByKind = dict[type[Event], list[Row]]
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

    def rounds_after(self, seq: int) -> int:
        """Return the number of later parts of the optimizers that ended the part of an event.

        Unlike the number of later steps, it is known where older parts were dropped, and the same
        for all parts of a round: each part belongs to the optimizers that end it.
        """
        at = bisect_right(self._part_ends, seq)
        while at < len(self.parts) and not self._updated[at]:
            at += 1
        return self.pattern[at + 1 :].count(self.pattern[at]) if at < len(self.parts) else 0

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
