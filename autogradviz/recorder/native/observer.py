"""The observer that records operators from C++, and the rest through hooks written in Python."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from autogradviz.events import (
    FrameSeen,
    MutationCloned,
    OpCalled,
    RandomDrawn,
    StackSeen,
    TensorSeen,
    VersionBumped,
    VersionRestored,
)
from autogradviz.recorder.native.stacks import NativeStacks
from autogradviz.recorder.native.tables import (
    NativeCreators,
    NativeRecentOutputs,
    NativeTensors,
    NativeVersions,
)
from autogradviz.recorder.python_observer import PythonObserver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from autogradviz.events import Event
    from autogradviz.recorder.ops.dispatch_mode import OpMode
    from autogradviz.recorder.python_observer import OpTables
    from autogradviz.recorder.session import Session

KINDS: Final[tuple[type[Event], ...]] = (
    TensorSeen, OpCalled, VersionBumped, VersionRestored, StackSeen, FrameSeen, RandomDrawn,
    MutationCloned,
)  # fmt: skip
"""The kinds of events that C++ emits, in the order of its enumeration."""

_ALSO_FROM_PYTHON: Final = (VersionBumped,)


class NativeObserver(PythonObserver):
    """Observes operators from C++."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        session.flush = self._flush

    def _make_op_tables(self, session: Session) -> OpTables:
        tensors = NativeTensors(session)
        versions = NativeVersions(session, tensors)
        creators = NativeCreators(session, tensors, versions)
        return NativeRecentOutputs(session), tensors, versions, creators

    def _make_mode(self, session: Session) -> OpMode | None:  # noqa: ARG002
        return None

    def _contexts(self) -> Iterator[AbstractContextManager[Any]]:
        yield from super()._contexts()
        if self._session.with_ops:
            yield self._observing()

    @contextmanager
    def _observing(self) -> Iterator[None]:
        native = self._session.native.module
        native.start()
        try:
            yield
        finally:
            native.stop()

    def _flush(self) -> None:
        """Move the events that C++ holds to the log."""
        log, stacks = self._session.log, self._session.stacks
        assert isinstance(stacks, NativeStacks)
        for kind, values in zip(KINDS, self._session.native.module.take(), strict=True):
            if kind is FrameSeen:
                log.extend_rows(kind, stacks.describe(values))
            elif values:
                log.appender(kind)(values)
        for kind in _ALSO_FROM_PYTHON:
            log.recent(kind).sort()
