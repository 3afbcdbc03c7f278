"""What a long recording keeps: the last steps in memory, everything on disk, or both.

NOTE [ Letting go ]
After each step the events of the oldest one are dropped. Definitions (tensors, stacks, modules,
hooks) stay while an event that is kept uses them, or while what they define lives; the
recorder's own tables let go of what is dead. Both are looked through only when they have doubled,
so that the cost for each event stays the same however long the recording is.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from autogradviz.errors import OutputExistsError
from autogradviz.event_log import Stream, check_not_exists
from autogradviz.events import (
    EVENT_TYPES,
    ModuleEntered,
    TensorSaved,
    TensorSeen,
    field_names,
)
from autogradviz.recorder.retention.compaction import KeepAll, RetentionPolicy
from autogradviz.recorder.retention.loss_watch import LossWatch
from autogradviz.recorder.retention.references import (
    DEFINITIONS,
    PASSING,
    defined,
    is_used,
    used_ids,
)

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from autogradviz.event_log import Log, PathLike
    from autogradviz.event_schema import Target
    from autogradviz.events import Event
    from autogradviz.recorder.recorder import Recorder

STEPS_BESIDE_FILE: Final = 3
"""Steps that stay in memory while everything goes to a file."""

BATCH: Final = 8_192  # events after which a batch is written in the middle of a step
SMALL_BATCH: Final = 4_096  # fewer events than this wait for more, but not for long
PATIENCE_S: Final = 1.0
MAX_HELD: Final = 1_000_000  # events in memory, however long a step is
MAX_BESIDE_FILE: Final = 65_536  # and while everything goes to a file
_SLACK: Final = 4_096

_SAVED_ID: Final = field_names(TensorSaved).index("saved_id")
_CALL_ID: Final = field_names(ModuleEntered).index("call_id")


class FlightRecorder(RetentionPolicy):
    """Drops old events, and writes all of them to a file where one is given."""

    def __init__(
        self,
        recorder: Recorder,
        steps: int,
        *,
        stream: Stream | None = None,
        watch: LossWatch | None = None,
    ) -> None:
        """Begin to keep.

        Args:
            recorder: whose events.
            steps: how many complete steps stay in memory, from 1.
            stream: where everything is written, or None.
            watch: looks at each step's losses, or None.
        """
        super().__init__(recorder, BATCH)
        self.watch = watch
        self._ends: deque[int] = deque(maxlen=steps + 1)
        self.stream = stream
        self._written: Counter[type[Event]] = Counter()  # rows of each kind, from the oldest
        self._wrote_at = monotonic()
        self._forget_at = _SLACK

    def _after_step(self, end_seq: int) -> None:
        """Write, and drop the oldest step."""
        self._ends.append(end_seq)
        if self._wait_for_more():
            return
        self.write()
        if len(self._ends) == self._ends.maxlen:
            self._drop_before(self._ends[0])
        if self.watch is not None:
            self.watch.look()

    def _amid_step(self, seq: int) -> None:
        """Write, and drop what is too much for one step."""
        self.write()
        most = MAX_HELD if self.stream is None else MAX_BESIDE_FILE
        if len(self._log) > most:
            self._drop_before(seq - most // 2)

    def finish(self) -> None:
        """Write the rest and end the file; nothing more is recorded."""
        self.write()
        if self.stream is not None:
            try:
                self.stream.close()
            except OSError as error:
                self._give_up(error)

    def abandon(self) -> None:
        """Leave everything as it is: this process is a copy of the one that records."""
        super().abandon()
        if self.stream is not None:
            self.stream.file.close()
            self.stream = None

    def lost(self, log: Log) -> str | None:
        """Return what is not in a log of what is kept, in one line."""
        if self.dropped == 0 or self.stream is not None:
            return None
        return (
            f"only the last steps were kept: {self.dropped:,} older events are gone, so graphs, "
            f"saved tensors and versions from before are not in these {len(log):,}"
        )

    # --- writing ---------------------------------------------------------------------------

    def _wait_for_more(self) -> bool:
        if self.stream is None:
            return False
        unwritten = len(self._log) - self._written.total()
        return unwritten < SMALL_BATCH and monotonic() < self._wrote_at + PATIENCE_S

    def write(self) -> None:
        """Write what is not written yet."""
        if self.stream is None:
            return
        pieces = [
            (kind, self._log.recent(kind).columns(self._written[kind])) for kind in EVENT_TYPES
        ]
        if not any(columns[0] for _, columns in pieces):
            return
        try:
            self.stream.write(pieces)
        except Exception as error:  # noqa: BLE001 - the step must go on
            self._give_up(error)
            return
        for kind, columns in pieces:
            self._written[kind] += len(columns[0])
        self._wrote_at = monotonic()

    def _give_up(self, error: Exception) -> None:
        """Go on in memory alone."""
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.file.close()
        self._recorder.fail("file", error)

    # --- dropping --------------------------------------------------------------------------

    def _drop_before(self, seq: int) -> None:
        for kind in PASSING:
            if kind is ModuleEntered:
                self._drop_closed_calls(seq)
            else:
                among = self._droppable(kind)
                self._count(kind, self._log.drop_before(kind, among, seq))
        if self.stream is None:
            # Nodes that outlive their step are told of in each step that uses them.
            self._recorder.nodes.oldest = self._ends[-1] if self._ends else seq
        if len(self._log.recent(TensorSeen)) > self._forget_at:
            self._forget(seq)
            self._forget_at = 2 * len(self._log.recent(TensorSeen)) + _SLACK

    def _drop_closed_calls(self, seq: int) -> None:
        """Keep the calls that still run: they may hold the whole training."""
        running = {call_id for state in self._recorder.threads for call_id in state.calls}
        older = self._log.recent(ModuleEntered).find(seq, stop=self._droppable(ModuleEntered))
        self._keep_only(ModuleEntered, older, lambda row: row[_CALL_ID] in running)

    def _keep_only(self, kind: type[Event], among: int, keep: Any) -> None:
        self._count(kind, self._log.keep_only(kind, among, keep))

    def _droppable(self, kind: type[Event]) -> int:
        """Return how many of a kind's rows may go: other threads go on appending."""
        return len(self._log.recent(kind)) if self.stream is None else self._written[kind]

    def _count(self, kind: type[Event], dropped: int) -> None:
        self.dropped += dropped
        if self.stream is not None:
            self._written[kind] -= dropped

    def _forget(self, seq: int) -> None:
        """Let go of what nothing refers to any more; see NOTE [ Letting go ]."""
        recorder, log = self._recorder, self._log
        recorder.leaves.forget()
        tensors = used_ids(log, "tensor") | recorder.leaves.living
        recorder.tensors.forget(tensors)
        recorder.versions.forget(recorder.tensors.storages, seq)
        saved = log.recent(TensorSaved).rows(1)
        recorder.saves.forget(seq, saved[0][_SAVED_ID] if saved else sys.maxsize)
        recorder.state.forget(seq)
        for table in (recorder.modules, recorder.hooks, recorder.stacks):
            table.forget()
        if len(recorder.contents) > MAX_HELD:
            recorder.contents.clear()
        living: dict[Target | None, AbstractSet[int]] = {
            "tensor": tensors | recorder.tensors.living,
            "module": recorder.modules.living,
            "hook": recorder.hooks.living,
            "stack": recorder.stacks.living,
        }
        for kind in DEFINITIONS:
            target = defined(kind)
            ids = living.get(target, set())
            if target is not None and target != "tensor":  # those were collected above
                ids = ids | used_ids(log, target)
            self._keep_only(kind, self._droppable(kind), is_used(log, kind, ids))


def open_keeper(recorder: Recorder, steps: int | None, path: PathLike | None) -> RetentionPolicy:
    """Return what keeps a recording: in memory all of it, where nothing else was asked for.

    With ``steps`` the last ones stay in memory, and are written to the path, where one is given,
    when a loss is not finite; with a path alone all is written there.

    Raises:
        OutputExistsError: something stands where the trace was to be written.
    """
    if path is not None:
        check_not_exists(path)
    if steps is not None:
        watch = None if path is None else LossWatch(recorder, Path(path).absolute())
        return FlightRecorder(recorder, steps, watch=watch)
    if path is None:
        return KeepAll(recorder)
    keeper = FlightRecorder(recorder, STEPS_BESIDE_FILE)
    try:
        keeper.stream = Stream(path)
    except OutputExistsError:
        raise
    except OSError as error:
        recorder.fail("file", error)
    return keeper
