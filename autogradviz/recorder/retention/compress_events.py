"""Compression of events during a recording, and the base class of retention policies.

NOTE [ Compaction ]
The values of a row are Python objects of some 300 bytes. When there are many rows, the oldest are
marshalled and compressed to 14 bytes an event, for half a microsecond each: at the end of a step if
there are enough, in the middle of a step if there are too many. The newest stay rows, since another
thread may be about to append an older event, and hook points read the last ones again. Short
recordings are never compressed.

At the same time the recorder forgets the ops, writes and regions of more than ``OPEN_STEPS`` steps
ago: if a graph from that time is first walked later, its versions are those at the walk.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from autogradviz.defer_signals import uninterrupted

if TYPE_CHECKING:
    from autogradviz.event_log import Log, Stream
    from autogradviz.recorder.observer_interface import Observer
    from autogradviz.recorder.retention.loss_watch import LossWatch
    from autogradviz.recorder.session import Session

COMPRESS_AFTER_STEP: Final = 16_384  # rows at the end of a step
COMPRESS: Final = 32_768  # rows in the middle of a step
UNCOMPRESSED: Final = 4_096  # the newest rows, which are not compressed
OPEN_STEPS: Final = 16  # steps whose ops and regions are remembered


class RetentionPolicy:
    """Decides which events of a recording stay in memory; acts at steps and when there are many."""

    stream: Stream | None = None
    """The file to which all events are written, or None."""

    watch: LossWatch | None = None
    """Writes the last steps when a loss is not finite, or None."""

    dropped = 0
    """The number of events that are no longer in memory."""

    def __init__(self, session: Session, observer: Observer, batch: int) -> None:
        """Attach to a recording.

        Args:
            session: of the recording.
            observer: of the recording; its tables are pruned.
            batch: how many events may come before the policy acts, however long a step is.
        """
        self._session = session
        self._observer = observer
        self._log = session.log
        self._batch = batch
        self._busy = threading.Lock()
        observer.steps.listeners.append(self.step_ended)
        session.sequence.on_due = self.on_due
        session.sequence.due = batch

    def step_ended(self, end_seq: int) -> None:
        """Act after a step; ``end_seq`` is the number of the first event after it."""
        if self._busy.acquire(blocking=False):
            try:
                with uninterrupted():
                    self._after_step(end_seq)
            finally:
                self._busy.release()

    def on_due(self, seq: int) -> None:
        """Act in the middle of a step; ``seq`` is the number of the newest event."""
        self._session.sequence.due = seq + self._batch
        if self._busy.acquire(blocking=False):
            try:
                with uninterrupted():
                    self._during_step(seq)
            finally:
                self._busy.release()

    def _after_step(self, end_seq: int) -> None:
        raise NotImplementedError

    def _during_step(self, seq: int) -> None:
        raise NotImplementedError

    def write(self) -> None:
        """Write the events to the file that are not in it yet, if there is a file."""

    def finish(self) -> None:
        """Write the last events and end the file."""

    def abandon(self) -> None:
        """Detach from the file without writing: this is a forked child, or the recording failed."""
        self._session.sequence.due = sys.maxsize

    def missing(self, log: Log) -> str | None:  # noqa: ARG002 - subclasses drop some
        """Return a one-line description of the events that a log lacks, None if it is complete."""
        return None


class KeepAll(RetentionPolicy):
    """Keeps all events, and compresses the old ones; see NOTE [ Compaction ]."""

    def __init__(self, session: Session, observer: Observer) -> None:
        super().__init__(session, observer, COMPRESS)
        self._ends: deque[tuple[int, int]] = deque(maxlen=OPEN_STEPS)  # event, saves so far
        self._pruned = (0, 0)  # the first event and save that are remembered
        self._failed = False

    def _after_step(self, end_seq: int) -> None:
        self._ends.append((end_seq, self._observer.saved_count))
        if self._log.recent_count > COMPRESS_AFTER_STEP:
            self._compress(end_seq)

    def _during_step(self, seq: int) -> None:
        if self._log.recent_count > COMPRESS_AFTER_STEP:
            self._compress(seq)

    def _compress(self, seq: int) -> None:
        if self._failed:
            return
        try:
            self._log.compress(seq - UNCOMPRESSED)
        except Exception as error:  # noqa: BLE001 - the step must go on; the rows stay rows
            self._failed = True
            self._session.fail("compression", error)
        self._prune()

    def _prune(self) -> None:
        """Forget the data that only graphs of long ago would need."""
        if len(self._ends) < OPEN_STEPS or self._ends[0] == self._pruned:
            return
        self._pruned = self._ends[0]
        self._observer.prune_history(*self._pruned)
