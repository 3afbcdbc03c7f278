"""The tensors that are alive when steps end: a list in a function that returns is gone later."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from autogradviz.events import TensorsAlive, TensorsFreedAfterSteps

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from autogradviz.recorder.engine_interface import Engine
    from autogradviz.recorder.session import Session

_READ_AT_EACH_END = 5000
"""Live storages that are read at each step end; more are read at fewer ends, for the same cost."""


class TensorsAliveAtStepEnds:
    """Remembers one tensor of each live storage at step ends."""

    def __init__(self, session: Session, engine: Engine) -> None:
        self._session = session
        self._engine = engine
        self._alive: deque[AbstractSet[int]] = deque(maxlen=2)
        self._ends_until_read = 0

    def read(self, _end_seq: int) -> None:
        """Read them at the end of a step."""
        if self._ends_until_read > 0:
            self._ends_until_read -= 1
            return
        alive = self._session.guarded("tensors", self._engine.live_storages) or ()
        self._alive.append(frozenset(alive))
        self._ends_until_read = len(alive) // _READ_AT_EACH_END

    def outlived(self) -> AbstractSet[int]:
        """Return one tensor of each storage that was alive at the last two ends that were read."""
        ends = self._alive
        return ends[0] & ends[1] if len(ends) == ends.maxlen else frozenset()

    def emit(self) -> None:
        """Record the tensors that are alive now, and those that outlived steps and are gone."""
        alive = self._engine.live_tensor_ids()
        gone = self.outlived() - alive
        self._session.emit(TensorsAlive, tuple(sorted(alive)))
        if gone:
            self._session.emit(TensorsFreedAfterSteps, tuple(sorted(gone)))
