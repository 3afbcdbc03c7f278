"""Long recordings: the last steps stay in memory, all events go to a file, or both.

NOTE [ Pruning ]
After each step the events of the oldest one are dropped. Definitions (tensors, stacks, modules,
hooks) stay while a kept event refers to them, or while the object that they define lives; the
tables of the hook points remove dead objects. Both are searched only when there are three times as
many definitions as were in use, so that the cost of each event stays the same however long the
recording is.

NOTE [ Undecoded steps ]
Without a file, the events that C++ emitted in a step stay as C++ wrote them: most steps are dropped
unread. Only definitions are decoded, at once, but not those of tensors, which are many: they stay
with their step, then alone, until tensors without a use are searched. That search reads ids in C++,
and decodes the tensors in use. The end of a step is often known only in the next one, so that a
segment holds the end of a step and the beginning of another: it stays whole until the log is read.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from pathlib import Path
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Final, NamedTuple

from autogradviz.errors import OutputExistsError
from autogradviz.event_log import Stream, check_not_exists
from autogradviz.event_log.filter_and_redact import (
    DEFINED_TARGETS,
    DEFINITIONS,
    PASSING,
    defined,
    used_ids,
    used_rows,
)
from autogradviz.events import (
    EVENT_TYPES,
    ModuleEntered,
    TensorSaved,
    TensorSeen,
    field_names,
)
from autogradviz.recorder.retention.keep_all_compressed import KeepAll
from autogradviz.recorder.retention.retention_policy_and_saves_by_step import (
    RetentionPolicy,
    StepSaves,
)
from autogradviz.recorder.retention.watch_losses_and_gradients import GradientWatch, LossWatch
from autogradviz.support.rank_and_trace_paths import current_rank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet

    from autogradviz.event_log import Log, PathLike
    from autogradviz.event_log.log import EngineSegment
    from autogradviz.events import Event
    from autogradviz.events.field_types import Target
    from autogradviz.recorder.hook_points import HookPoints
    from autogradviz.recorder.session import Session

STEPS_BESIDE_FILE: Final = 3
"""Steps that stay in memory while all events go to a file."""

MAX_TURNS: Final = 4
"""Steps that stay in memory, as a multiple of those that are to be kept of each optimizer."""

BATCH: Final = 8_192  # events after which a batch is written in the middle of a step
SMALL_BATCH: Final = 4_096  # a smaller batch waits for more events, at most ``PATIENCE_S``
PATIENCE_S: Final = 1.0
WRITE_SHARE: Final = 0.05  # of the time, for writing small batches of one of several ranks
MAX_HELD: Final = 1_000_000  # events in memory, however long a step is
MAX_BESIDE_FILE: Final = 65_536  # the same while all events go to a file
NORMS_SHARE: Final = 0.02  # of the time, for reading the norms of gradients beside a file
_GROWTH: Final = 3  # a higher one costs memory: 0.3 MB for 1,000 tensors
_SLACK: Final = 16_384  # definitions of tensors from which on those without a use are searched

_SAVED_ID: Final = field_names(TensorSaved).index("saved_id")
_CALL_ID: Final = field_names(ModuleEntered).index("call_id")


_DECODED: Final = frozenset(EVENT_TYPES).difference(PASSING, [TensorSeen])
"""The kinds of events that C++ emitted which are decoded at once."""


class _Undecoded(NamedTuple):
    """Events that C++ emitted, which the log has as a segment; see NOTE [ Undecoded steps ]."""

    first: int
    """A number that no event is below."""
    stop: int
    """A number that all events are below."""
    segment: EngineSegment


class FlightRecorder(RetentionPolicy):
    """Drops old events, after writing them to a file if there is one."""

    def __init__(
        self,
        session: Session,
        hook_points: HookPoints,
        steps: int,
        *,
        watch: LossWatch | None = None,
    ) -> None:
        """Attach to a recording.

        Args:
            session: of the recording.
            hook_points: of the recording.
            steps: how many complete steps of each optimizer stay in memory, from 1.
            watch: checks the losses of each step, or None.
        """
        super().__init__(session, hook_points, BATCH)
        self.watch = watch
        self._steps = steps
        self._ends: deque[tuple[int, int]] = deque()  # of steps, each with what ended it
        self._written: Counter[type[Event]] = Counter()  # rows of each kind, from the oldest
        self._wrote_at = monotonic()
        self._write_took = 0.0  # seconds, of the last write
        hook_points.steps.ending_listeners.append(self._read_norms)
        self._norms_due = monotonic()
        self._next_backward_id = 0  # the first whose gradients were not read
        rank = current_rank()
        self._undecoded: deque[_Undecoded] = deque()
        self._old_tensors: list[EngineSegment] = []  # the tensors of dropped segments
        self._flushed = 0  # all events before this one were moved to the log
        self._first_kept = 0  # older events are dropped, at the latest when the log is read
        self._survives_abort = rank is not None and rank.world_size > 1
        self._prune_at = _SLACK
        self._step_saves = StepSaves(hook_points.held_saves)

    def _after_step(self, end_seq: int) -> None:
        """Write the step, and drop the oldest one."""
        self._ends.append((end_seq, self._hook_points.steps.ended_by))
        if self.stream is None:
            self._step_saves.step_ended(self._hook_points.saved_count)
            # Nodes that outlive their step are described in each step that uses them.
            self._hook_points.describe_again(end_seq)
        if self._wait_for_more():
            return
        self.write()
        self._drop_steps()
        if self.watch is not None:
            self.watch.check()

    def _read_norms(self) -> None:
        """Record the norms of the gradients of the step, if that takes a small share of time."""
        now, began = monotonic(), thread_time()
        if self.stream is None or self._session.with_fingerprints or now < self._norms_due:
            return
        gradients = self._hook_points.gradients
        self._next_backward_id = gradients.read_step_norms(self._next_backward_id)
        self._norms_due = now + (thread_time() - began) / NORMS_SHARE

    def _during_step(self, seq: int) -> None:
        """Write, and drop events if a single step has too many."""
        self.write()
        most = MAX_HELD if self.stream is None else MAX_BESIDE_FILE
        if len(self._log) > most:
            self._drop_before(seq - most // 2)

    def finish(self) -> None:
        """Write the last events and end the file."""
        self.write()
        if self.stream is not None:
            try:
                self.stream.close()
            except OSError as error:
                self._disable_stream(error)

    def abandon(self) -> None:
        """Close the file without writing."""
        super().abandon()
        if self.stream is not None:
            self.stream.file.close()
            self.stream = None

    def missing(self, log: Log) -> str | None:
        """Return a one-line description of the events that a log lacks, None if it is complete."""
        if self.dropped == 0 or self.stream is not None:
            return None
        return (
            f"only the last steps were kept: {len(log):,} events; the {self.dropped:,} before them "
            "are gone, with their graphs, saved tensors and versions (keep_steps keeps more steps)"
        )

    def older_held(self, log: Log) -> tuple[int, int] | None:
        """Return the bytes that dropped steps hold, and their number; None if no step holds any."""
        return self._step_saves.older_held(log)

    def flush(self, least: int = 0) -> None:
        """Move the events that C++ holds to the log; see NOTE [ Undecoded steps ]."""
        if self.stream is not None:
            self._session.flush(least=least)
            return
        # Another thread may emit events meanwhile: they belong to both ranges.
        first, flushed = self._flushed, self._session.event_count
        segment = self._session.flush(_DECODED, least=least)
        if segment is not None:
            self._undecoded.append(_Undecoded(first, self._session.event_count, segment))
        self._flushed = flushed

    def prepare_to_read(self) -> None:
        """Move all events to the log, and drop the rest of the oldest step."""
        self.flush()
        if self._undecoded and self._undecoded[0].first < self._first_kept:
            self._decode(self._first_kept)
            self._drop_rows(self._first_kept)

    # --- writing ---------------------------------------------------------------------------

    def _wait_for_more(self) -> bool:
        if self.stream is None:
            return False
        if self._survives_abort:
            return monotonic() < self._wrote_at + self._write_took / WRITE_SHARE
        unwritten = len(self._log) - self._written.total()
        return unwritten < SMALL_BATCH and monotonic() < self._wrote_at + PATIENCE_S

    def write(self) -> None:
        """Write the events to the file that are not in it yet."""
        if self.stream is None:
            return
        pieces = [
            (kind, self._log.recent(kind).columns(self._written[kind])) for kind in EVENT_TYPES
        ]
        if not any(columns[0] for _, columns in pieces):
            return
        began = monotonic()
        try:
            self.stream.write(pieces)
        except Exception as error:  # noqa: BLE001 - the step must go on
            self._disable_stream(error)
            return
        for kind, columns in pieces:
            self._written[kind] += len(columns[0])
        self._wrote_at = monotonic()
        self._write_took = self._wrote_at - began

    def _disable_stream(self, error: Exception) -> None:
        """Close the file after a failure; the recording continues in memory."""
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.file.close()
        self._session.fail("file", error)

    # --- dropping --------------------------------------------------------------------------

    def _drop_steps(self) -> None:
        """Drop the oldest steps that are too many.

        If optimizers take turns, as those of a GAN do, the last steps of each of them stay.
        """
        found = Counter(optimizer for _, optimizer in self._ends)
        oldest = None
        while found[self._ends[0][1]] > self._steps or len(self._ends) > MAX_TURNS * self._steps:
            oldest, optimizer = self._ends.popleft()
            found[optimizer] -= 1
        if oldest is not None:
            self._drop_before(oldest)

    def _drop_before(self, seq: int) -> None:
        self._first_kept = seq
        self._drop_undecoded(seq)
        self._drop_rows(seq)
        if self.stream is None:
            self._hook_points.describe_again(self._ends[-1][0] if self._ends else seq)
        if self._log.count(TensorSeen) > self._prune_at:
            self._prune(seq)
            self._prune_at = _GROWTH * self._log.count(TensorSeen) + _SLACK

    def _drop_rows(self, seq: int) -> None:
        for kind in PASSING:
            if kind is ModuleEntered:
                self._drop_closed_calls(seq)
            else:
                among = self._droppable(kind)
                self._count(kind, self._log.drop_before(kind, among, seq))

    def _drop_undecoded(self, seq: int) -> None:
        """Drop the segments that have only older events."""
        calls = (ModuleEntered,) if self._running_calls() else ()
        while self._undecoded and self._undecoded[0].stop <= seq:
            segment = self._undecoded.popleft().segment
            kept = (*calls, TensorSeen)
            self.dropped += sum(n for kind, n in segment.counts.items() if kind not in kept)
            tensors = segment.only(TensorSeen) if TensorSeen in segment.counts else None
            if tensors is not None:
                self._old_tensors.append(tensors)
            self._log.remove_segment(segment, calls, tensors)

    def _decode(self, seq: int) -> None:
        """Decode the segments that have events older than an event."""
        while self._undecoded and self._undecoded[0].first < seq:
            segment = self._undecoded.popleft().segment
            self._log.remove_segment(segment, segment.counts)

    def _running_calls(self) -> set[int]:
        return {call_id for state in self._session.threads for call_id in state.calls}

    def _drop_closed_calls(self, seq: int) -> None:
        """Drop module calls that have returned; an open one may contain the whole training."""
        running = self._running_calls()
        rows = self._log.recent(ModuleEntered)
        older = rows.find(seq, stop=self._droppable(ModuleEntered))
        self._keep_only(ModuleEntered, older, map(running.__contains__, rows.column(_CALL_ID)))

    def _keep_only(self, kind: type[Event], among: int, kept: Iterable[bool]) -> None:
        self._count(kind, self._log.keep_only(kind, among, kept))

    def _droppable(self, kind: type[Event]) -> int:
        """Return the number of rows of a kind that may be dropped; other threads may add rows."""
        return len(self._log.recent(kind)) if self.stream is None else self._written[kind]

    def _count(self, kind: type[Event], dropped: int) -> None:
        self.dropped += dropped
        if self.stream is not None:
            self._written[kind] -= dropped

    def _prune(self, seq: int) -> None:
        """Drop definitions that no event refers to; see NOTE [ Pruning ]."""
        log = self._log
        used = self._used_in_undecoded()
        tensors = used["tensor"] | used_ids(log, "tensor")
        arguments = used["arguments"] | used_ids(log, "arguments")
        live = self._hook_points.prune(tensors, arguments, seq, self._first_saved_id())
        self._decode_old_tensors(live["tensor"])
        for kind in DEFINITIONS:
            target = defined(kind)
            ids: AbstractSet[int] = set()
            if target is not None:
                ids = live.get(target, ids)
                if target != "tensor":  # those were collected above
                    ids = ids | used_ids(log, target) | used[target]
            self._keep_only(kind, self._droppable(kind), used_rows(log, kind, ids))

    def _used_in_undecoded(self) -> dict[Target, set[int]]:
        """Return the ids that undecoded events refer to, except those of dropped segments."""
        found: dict[Target, set[int]] = {target: set() for target in DEFINED_TARGETS}
        for _, _, segment in self._undecoded:
            for target, ids in segment.used_ids().items():
                found[target] |= ids
        return found

    def _first_saved_id(self) -> int:
        """Return the oldest save in memory, or a number that none has."""
        ids = self._log.recent(TensorSaved).column(_SAVED_ID)[:1]
        for _, _, segment in self._undecoded:
            if TensorSaved in segment.counts:
                ((_, columns),) = segment.columns((TensorSaved,))
                ids.append(min(columns[_SAVED_ID]))
                break
        return min(ids, default=sys.maxsize)

    def _decode_old_tensors(self, ids: AbstractSet[int]) -> None:
        """Decode the tensors in use among those of dropped segments, and drop the others."""
        rows = self._log.recent(TensorSeen)
        for segment in self._old_tensors:
            before = len(rows)
            rows.append(segment.decode_defined(TensorSeen, ids))
            self.dropped += segment.counts[TensorSeen] - (len(rows) - before)
            self._log.remove_segment(segment)
        self._old_tensors.clear()
        rows.sort()


def open_retention(
    session: Session,
    hook_points: HookPoints,
    snapshot_log: Callable[[], Log],
    steps: int | None,
    path: PathLike | None,
) -> RetentionPolicy:
    """Return the retention policy of a recording.

    Without options all events are kept in memory. With ``steps`` the last ones are, and are written
    to the path, if there is one, when a loss is not finite; with a path alone all events are
    written there.

    Args:
        session: of the recording.
        hook_points: of the recording.
        snapshot_log: returns a log of the events in memory.
        steps: how many complete steps stay in memory, from 1.
        path: of the file to write.

    Raises:
        OutputExistsError: there is a file at the path.
    """
    if path is not None:
        check_not_exists(path)
    if steps is not None:
        watch = (
            None if path is None
            else LossWatch(session, hook_points, snapshot_log, Path(path).absolute())
        )  # fmt: skip
        if session.with_ops and not session.with_fingerprints:
            GradientWatch(session, hook_points, steps)
        return FlightRecorder(session, hook_points, steps, watch=watch)
    if path is None:
        return KeepAll(session, hook_points)
    retention = FlightRecorder(session, hook_points, STEPS_BESIDE_FILE)
    try:
        retention.stream = Stream(path)
    except OutputExistsError:
        raise
    except OSError as error:
        session.fail("file", error)
    return retention
