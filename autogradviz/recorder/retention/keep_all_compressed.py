"""Keep all events of a recording, and compress the old ones.

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

from collections import deque
from typing import TYPE_CHECKING, Final

from autogradviz.recorder.retention.retention_policy_and_saves_by_step import RetentionPolicy

if TYPE_CHECKING:
    from autogradviz.recorder.hook_points import HookPoints
    from autogradviz.recorder.session import Session

COMPRESS_AFTER_STEP: Final = 16_384  # rows at the end of a step
COMPRESS: Final = 32_768  # rows in the middle of a step
UNCOMPRESSED: Final = 4_096  # the newest rows, which are not compressed
OPEN_STEPS: Final = 16  # steps whose ops and regions are remembered


class KeepAll(RetentionPolicy):
    """Keeps all events, and compresses the old ones; see NOTE [ Compaction ]."""

    flush_bytes = 2**19

    def __init__(self, session: Session, hook_points: HookPoints) -> None:
        super().__init__(session, hook_points, COMPRESS)
        self._ends: deque[tuple[int, int]] = deque(maxlen=OPEN_STEPS)  # event, saves so far
        self._pruned = (0, 0)  # the first event and save that are remembered
        self._failed = False
        self._count_at = 0  # the event from which on there may be enough rows to compress

    def flush(self, least: int = 0) -> None:
        """Move the events that C++ holds to the log, as one compressed segment."""
        self._session.flush((), least=least, compress=True)

    def _after_step(self, end_seq: int) -> None:
        self._ends.append((end_seq, self._hook_points.saved_count))
        self._compress_if_many(end_seq)

    def _during_step(self, seq: int) -> None:
        self._compress_if_many(seq)

    def _compress_if_many(self, seq: int) -> None:
        if seq < self._count_at:
            return
        if self._log.recent_count > COMPRESS_AFTER_STEP:
            self._compress(seq)
        # Each event adds at most one row.
        self._count_at = seq + max(COMPRESS_AFTER_STEP - self._log.recent_count, 0)

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
        self._hook_points.prune_history(*self._pruned)
