"""The observer that records operators and graphs from C++, and the rest through Python hooks."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from autogradviz.events import (
    FrameSeen,
    SlotSeen,
    TensorReleased,
    TensorSaved,
    TensorUnpacked,
    VersionBumped,
)
from autogradviz.recorder.native.data_attribute import observe_data_reads
from autogradviz.recorder.native.graph_tables import (
    NativeLeaves,
    NativeModules,
    NativeNodes,
    NativeRuns,
    NativeSaves,
)
from autogradviz.recorder.native.hook_tracer import NativeHookTracer
from autogradviz.recorder.native.stacks import NativeStacks
from autogradviz.recorder.native.tables import (
    NativeCreators,
    NativeFingerprints,
    NativeRecentOutputs,
    NativeTensors,
    NativeVersions,
)
from autogradviz.recorder.native.undecoded_rows import KINDS, UndecodedRows, frames_of
from autogradviz.recorder.ops.collective_waits import observe_waits
from autogradviz.recorder.python_observer import PythonObserver

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from contextlib import AbstractContextManager

    from autogradviz.events import Event
    from autogradviz.recorder.ids.leaves_and_requires_grad import LeafTable
    from autogradviz.recorder.module_calls import ModuleTable
    from autogradviz.recorder.ops.dispatch_mode import OpMode
    from autogradviz.recorder.python_observer import OpTables
    from autogradviz.recorder.saved_tensors.hook_wrappers import HookTracer
    from autogradviz.recorder.saved_tensors.save_registry import SaveTable
    from autogradviz.recorder.session import Session

_SORTED: Final = (VersionBumped, TensorSaved, TensorUnpacked, TensorReleased, SlotSeen)
"""Python emits such events too, or C++ more than one list of them."""


class NativeObserver(PythonObserver):
    """Observes operators, graphs and nodes that run from C++."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        session.flush = self._flush

    def _make_fingerprints(self, session: Session) -> NativeFingerprints:
        return NativeFingerprints(session)

    def _make_op_tables(self, session: Session) -> OpTables:
        tensors = NativeTensors(session)
        versions = NativeVersions(session, tensors)
        creators = NativeCreators(session, tensors, versions)
        return NativeRecentOutputs(session), tensors, versions, creators

    def _make_leaves(self, session: Session) -> LeafTable:
        return NativeLeaves(session, self.tensors)

    def _make_modules(self, session: Session) -> ModuleTable:
        return NativeModules(session, self.tensors, self.leaves, self.recent_outputs)

    def _make_saves(self, session: Session) -> SaveTable:
        return NativeSaves(session, self.tensors, self.creators, self.fingerprints)

    def _make_tracer(self, session: Session) -> HookTracer:
        return NativeHookTracer(session, self.tensors, self.saves, self.fingerprints)

    def _make_graph_tables(self, session: Session) -> tuple[Any, Any]:
        nodes = NativeNodes(session, self.leaves, self.slots, self.functions)
        return NativeRuns(session, self.gradients), nodes

    def _make_mode(self, session: Session) -> OpMode | None:  # noqa: ARG002
        return None

    def _contexts(self) -> Iterator[AbstractContextManager[Any]]:
        yield from super()._contexts()
        if self._session.with_ops:
            yield observe_data_reads(self._session)
            yield observe_waits(self._session, self._session.native.recording.collective_count)
        yield self._observing()

    @contextmanager
    def _observing(self) -> Iterator[None]:
        native = self._session.native.recording
        native.start()
        try:
            yield
        finally:
            native.stop()

    def _flush(
        self, kinds: Collection[type[Event]] = KINDS, *, least: int = 0, compress: bool = False
    ) -> UndecodedRows | None:
        """Move the events that C++ holds to the log; see ``Session.flush``."""
        recording = self._session.native.recording
        if recording.buffered() < least:
            return None
        log, stacks = self._session.log, self._session.stacks
        assert isinstance(stacks, NativeStacks)
        batch = recording.take()
        log.extend_rows(FrameSeen, stacks.describe(frames_of(batch)))
        batch.drop_codes()
        rows = UndecodedRows(batch)
        for kind, values in rows.take(kinds):
            log.recent(kind).append(values)
            if kind in _SORTED:
                log.recent(kind).sort()
        if not rows.counts:
            return None
        if compress:
            rows.compress()
        log.segments.add(rows)
        return rows
