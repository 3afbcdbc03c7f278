"""The base class of retention policies, and the saves that each step made and still holds."""

from __future__ import annotations

import sys
import threading
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from autogradviz.events import ParameterSeen, TensorSaved, TensorSeen
from autogradviz.support.defer_and_redeliver_signals import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.event_log import Log, Stream
    from autogradviz.recorder.hook_points import HookPoints
    from autogradviz.recorder.retention.watch_losses_and_gradients import LossWatch
    from autogradviz.recorder.session import Session


# --- retention policy base ------------------------------------------------------------------------
#
# The base class of retention policies: it acts after steps, and when there are many events.


class RetentionPolicy:
    """Decides which events of a recording stay in memory; acts at steps and when there are many."""

    stream: Stream | None = None
    """The file to which all events are written, or None."""

    watch: LossWatch | None = None
    """Writes the last steps when a loss is not finite, or None."""

    flush_bytes = 0
    """The bytes of events from which on C++ hands them over."""

    dropped = 0
    """The number of events that are no longer in memory."""

    def __init__(self, session: Session, hook_points: HookPoints, batch: int) -> None:
        """Attach to a recording.

        Args:
            session: of the recording.
            hook_points: of the recording; its tables are pruned.
            batch: how many events may come before the policy acts, however long a step is.
        """
        self._session = session
        self._hook_points = hook_points
        self._log = session.log
        self._batch = batch
        self._busy = threading.Lock()
        hook_points.steps.listeners.append(self.step_ended)
        session.sequence.on_due = self.on_due
        session.sequence.set_due(batch)

    def step_ended(self, end_seq: int) -> None:
        """Act after a step; ``end_seq`` is the number of the first event after it."""
        if self._busy.acquire(blocking=False):
            try:
                with uninterrupted():
                    self.flush(self.flush_bytes)
                    self._after_step(end_seq)
            finally:
                self._busy.release()

    def on_due(self, seq: int) -> None:
        """Act in the middle of a step; ``seq`` is the number of the newest event."""
        self._session.sequence.set_due(seq + self._batch)
        if self._busy.acquire(blocking=False):
            try:
                with uninterrupted():
                    self.flush(self.flush_bytes)
                    self._during_step(seq)
            finally:
                self._busy.release()

    def _after_step(self, end_seq: int) -> None:
        raise NotImplementedError

    def _during_step(self, seq: int) -> None:
        raise NotImplementedError

    def write_now(self) -> None:
        """Write all events to the file, if there is one; not if another thread is writing."""
        if self.stream is not None and self._busy.acquire(timeout=1.0):
            try:
                self.flush()
                self.write()
            finally:
                self._busy.release()

    def flush(self, least: int = 0) -> None:
        """Move the events that C++ holds to the log, if there are at least so many bytes."""
        raise NotImplementedError

    def prepare_to_read(self) -> None:
        """Move all events to the log, which then holds what the policy keeps."""
        self.flush()

    def write(self) -> None:
        """Write the events to the file that are not in it yet, if there is a file."""

    def finish(self) -> None:
        """Write the last events and end the file."""

    def abandon(self) -> None:
        """Detach from the file without writing: this is a forked child, or the recording failed."""
        self._session.sequence.set_due(sys.maxsize)

    def older_held(self, log: Log) -> tuple[int, int] | None:  # noqa: ARG002 - as in ``missing``
        """Return the bytes that dropped steps hold, and their number; None if no step holds any."""
        return None

    def missing(self, log: Log) -> str | None:  # noqa: ARG002 - subclasses drop some
        """Return a one-line description of the events that a log lacks, None if it is complete."""
        return None


# --- the saved tensors that dropped steps hold, for example because a list keeps their losses -----
#
# Only saves that are still held are known to the engine, so a step that releases everything leaves
# nothing here. Saves through hooks are not counted: what holds them is known to the hooks.


_MANY: Final = 4_096  # steps from which on those that hold nothing are forgotten


class StepSaves:
    """The saves at which steps ended."""

    def __init__(self, held_saves: Callable[[], dict[int, int]]) -> None:
        """Take the function that returns the saves that are held, each with its tensor."""
        self._held_saves = held_saves
        self._ends: list[int] = []  # for each step the first save after it, in ascending order
        self._forget_at = _MANY

    def step_ended(self, saved_count: int) -> None:
        """Remember the number of saves so far."""
        self._ends.append(saved_count)
        if len(self._ends) >= self._forget_at:
            # A step without saves becomes a part of the next one.
            self._ends = [self._ends[step] for step in sorted(self._steps_of(self._held_saves()))]
            self._forget_at = 2 * len(self._ends) + _MANY

    def _steps_of(self, saves: dict[int, int]) -> set[int]:
        """Return the places of the steps that made some saves; the last step is not over."""
        places = {bisect_right(self._ends, saved_id) for saved_id in saves}
        places.discard(len(self._ends))
        return places

    def older_held(self, log: Log) -> tuple[int, int] | None:
        """Return the bytes that steps hold which are not in a log, and the number of these steps.

        A storage that a step in the log holds too is not counted, nor are parameters and buffers.
        """
        in_log = {saved_id for (saved_id,) in log.fields(TensorSaved, "saved_id")}
        held = self._held_saves()
        older = {each: tensor for each, tensor in held.items() if each not in in_log}
        if not older:
            return None
        tensors = {
            tensor_id: (storage_id, nbytes)
            for tensor_id, storage_id, nbytes in log.fields(
                TensorSeen, "tensor_id", "storage_id", "storage_nbytes"
            )
        }
        counted = [tensor for each, tensor in held.items() if each in in_log]
        counted += [tensor for (tensor,) in log.fields(ParameterSeen, "tensor_id")]
        others = {tensors[tensor][0] for tensor in counted if tensor in tensors}
        holding = {
            each: tensors[tensor]
            for each, tensor in older.items()
            if tensor in tensors and tensors[tensor][0] not in others | {None}
        }
        steps = len({bisect_right(self._ends, each) for each in holding})
        return (sum(dict(holding.values()).values()), steps) if holding else None
