"""What becomes of events while a recording goes on: when somebody looks after them, and sealing.

NOTE [ Sealing ]
The values of a row are Python objects of some 300 bytes. Once there are many, the oldest are
marshalled and compressed, to 14 bytes an event, for half a microsecond each: where a step ends
if there are enough, in the middle of a step if there are too many. The newest stay rows, since
another thread may be about to append an older event, and seams look back at the last ones. Short
recordings are never sealed.

With the rows goes what the recorder itself remembers of ops, writes and regions from more than
``OPEN_STEPS`` steps ago: a graph that nobody has looked at since then would have its
versions read when somebody does.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from autogradviz.signals import uninterrupted

if TYPE_CHECKING:
    from autogradviz.event_log import Log, Stream
    from autogradviz.recorder.recorder import Recorder
    from autogradviz.recorder.retention.loss_watch import LossWatch

SEAL_AFTER_STEP: Final = 16_384  # events that are rows when a step ends
SEAL: Final = 32_768  # and in the middle of a step
STAY: Final = 4_096  # the newest ones, which are not sealed
OPEN_STEPS: Final = 16  # steps whose ops and regions are remembered


class RetentionPolicy:
    """Looks after a recording's events, where a step ends and when there are many."""

    stream: Stream | None = None
    """Where everything is written, or None."""

    watch: LossWatch | None = None
    """What writes the last steps when a loss is not finite, or None."""

    dropped = 0
    """Events that are no longer in memory."""

    def __init__(self, recorder: Recorder, batch: int) -> None:
        """Begin to look after a recording.

        Args:
            recorder: whose events.
            batch: how many events may come before the next look, however long a step is.
        """
        self._recorder = recorder
        self._log = recorder.log
        self._batch = batch
        self._busy = threading.Lock()
        recorder.steps.listeners.append(self.step_ended)
        recorder.tally.due = batch

    def step_ended(self, end_seq: int) -> None:
        """Do what is due after a step; ``end_seq`` is the number of the first event after it."""
        if self._busy.acquire(blocking=False):
            try:
                with uninterrupted():
                    self._after_step(end_seq)
            finally:
                self._busy.release()

    def filled(self, seq: int) -> None:
        """Do what is due in the middle of a step; ``seq`` is the newest event's number."""
        self._recorder.tally.due = seq + self._batch
        if self._busy.acquire(blocking=False):
            try:
                with uninterrupted():
                    self._amid_step(seq)
            finally:
                self._busy.release()

    def _after_step(self, end_seq: int) -> None:
        raise NotImplementedError

    def _amid_step(self, seq: int) -> None:
        raise NotImplementedError

    def write(self) -> None:
        """Write what is not written yet, where anything is."""

    def finish(self) -> None:
        """Write the rest and end the file; nothing more is recorded."""

    def abandon(self) -> None:
        """Leave everything as it is: this process is a copy of the one that records."""
        self._recorder.tally.due = sys.maxsize

    def lost(self, log: Log) -> str | None:  # noqa: ARG002 - others lose some
        """Return what is not in a log of what is kept, in one line."""
        return None


class KeepAll(RetentionPolicy):
    """Keeps all events, and seals the old ones; see NOTE [ Sealing ]."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder, SEAL)
        self._ends: deque[tuple[int, int]] = deque(maxlen=OPEN_STEPS)  # event, saves so far
        self._forgotten = (0, 0)  # the first event and save that are remembered
        self._broken = False

    def _after_step(self, end_seq: int) -> None:
        self._ends.append((end_seq, self._recorder.saves.count))
        if self._log.recent_count > SEAL_AFTER_STEP:
            self._seal(end_seq)

    def _amid_step(self, seq: int) -> None:
        if self._log.recent_count > SEAL_AFTER_STEP:
            self._seal(seq)

    def _seal(self, seq: int) -> None:
        if self._broken:
            return
        try:
            self._log.seal(seq - STAY)
        except Exception as error:  # noqa: BLE001 - the step must go on; the rows stay rows
            self._broken = True
            self._recorder.fail("sealing", error)
        self._forget()

    def _forget(self) -> None:
        """Let go of what only graphs of long ago would need."""
        recorder = self._recorder
        if len(self._ends) < OPEN_STEPS or self._ends[0] == self._forgotten:
            return
        first_seq, first_saved_id = self._forgotten = self._ends[0]
        recorder.saves.forget(first_seq, first_saved_id)
        recorder.versions.forget_rises(recorder.tensors.storages, first_seq)
        recorder.state.forget(first_seq)
        recorder.modules.forget()
