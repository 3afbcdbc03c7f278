"""The engine that observes operators, graphs and nodes from C++."""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from functools import cache, partial
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.events import (
    FrameSeen,
    SlotSeen,
    TensorReleased,
    TensorSaved,
    TensorUnpacked,
    VersionBumped,
)
from autogradviz.recorder import engine_interface
from autogradviz.recorder.compile.leave_out_generated_code_ops import OVERLOAD_CODE
from autogradviz.recorder.engine_interface import Engine, GraphTables, MethodOf, Tables
from autogradviz.recorder.event_writer import EventSequence
from autogradviz.recorder.native.access_cpp_tables import (
    KINDS,
    NativeDeviceSpans,
    NativeFingerprints,
    NativeFunctions,
    NativeModuleCalls,
    NativeNodes,
    NativeRecentTensors,
    NativeRuns,
    NativeSaves,
    NativeTensors,
    UndecodedRows,
    frames_of,
)
from autogradviz.recorder.native.stacks_and_checkpoint_hooks import (
    CheckpointHooks,
    NativeStacks,
    observe_data_reads,
)
from autogradviz.recorder.native.state_walk_snapshot import take_snapshot
from autogradviz.recorder.ops.collectives import observe_waits
from autogradviz.recorder.thread_state import ThreadTable
from autogradviz.recorder.torch_internals.private_api import CloneArgBeforeMutateMode
from autogradviz.recorder.torch_internals.unreadable_tensors import LIMITS, FakeTensor
from autogradviz.support.defer_and_redeliver_signals import without_raising

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractContextManager

    from autogradviz.events import Event
    from autogradviz.recorder.backward.custom_function_calls import CustomFunctionTable
    from autogradviz.recorder.backward.loss_and_gradient_norms import GradientTable
    from autogradviz.recorder.checkpoint.state_walk_snapshot import TakeSnapshot
    from autogradviz.recorder.engine_interface import WrapHooks
    from autogradviz.recorder.leaf_tensors_and_versions import LeafTable
    from autogradviz.recorder.module_names_and_calls import ModuleTable
    from autogradviz.recorder.native.extension_types import Extension, Recording
    from autogradviz.recorder.ops.op_arguments import OpOrigins
    from autogradviz.recorder.saved_tensors.hooks import HookTracer
    from autogradviz.recorder.saved_tensors.registry_of_saves import SaveTable
    from autogradviz.recorder.session import Session
    from autogradviz.recorder.thread_state import ThreadState

_SORTED: Final = (VersionBumped, TensorSaved, TensorUnpacked, TensorReleased, SlotSeen)
"""Python emits such events too, or C++ more than one list of them."""

_SUBCLASS_CODES: Final = tuple(
    kind.__new__.__code__ for kind in (torch.nn.Parameter, torch.nn.Buffer)
)
"""Functions that make an object of a subclass for a tensor."""

_NEVER: Final = 2**62


class NativeSequence(EventSequence):
    """Numbers from C++, which also notices that many events were added."""

    __slots__ = ("_recording",)

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        super().__init__(recording.program_time_ns, recording.next_seq)

    def set_due(self, seq: int) -> None:
        """Call ``on_due`` for each event from a number on, also for those that C++ emits."""
        super().set_due(seq)
        if seq < _NEVER:
            self._recording.set_due(seq, self._act)
        else:  # without a reference to this object
            self._recording.set_due(_NEVER, None)

    def _act(self, seq: int) -> None:
        """Call ``on_due``; C++ has recorded many events. C++ drops what this raises."""
        if seq >= self.due:
            without_raising(partial(self.on_due, seq), None)


class NativeEngine(Engine):
    """Observes PyTorch from C++; ``Engine`` has the docs."""

    description = "native"
    notes_failed_ops = True

    begin_recorder_time: Any = MethodOf("recording")
    end_recorder_time: Any = MethodOf("recording")
    recorder_time_ns: Any = MethodOf("recording")
    take_step: Any = MethodOf("recording")
    suspend: Any = MethodOf("recording")
    enter_hook: Any = MethodOf("recording")
    leave_hook: Any = MethodOf("recording")
    innermost_run: Any = MethodOf("recording")
    last_op: Any = MethodOf("recording")
    set_fingerprints: Any = MethodOf("recording")
    failed_run: Any = MethodOf("recording")
    run_count: Any = MethodOf("recording")
    drop_runs: Any = MethodOf("recording")
    live_tensor_ids: Any = MethodOf("recording")
    live_storages: Any = MethodOf("recording")
    live_nbytes: Any = MethodOf("recording")
    emit_freed: Any = MethodOf("recording")
    failed_op: Any = MethodOf("recording")
    held_saves: Any = MethodOf("recording")
    prune_arguments: Any = MethodOf("recording")
    prune_history: Any = MethodOf("recording")
    ordinary_nbytes: Any = MethodOf("extension")
    norm: Any = MethodOf("extension")
    read_number: Any = MethodOf("extension")

    def __init__(self, extension: Extension) -> None:
        """Prepare for one recording.

        Args:
            extension: the C++ extension.
        """
        self.extension = extension
        self.recording: Recording = extension.Recording()
        """The recording in C++."""
        self.take_snapshot: TakeSnapshot = partial(take_snapshot, extension)
        self.sequence = NativeSequence(self.recording)
        self.threads = ThreadTable(self._attach)
        self._stacks: NativeStacks
        self._contents: NativeFingerprints
        self._recent: NativeRecentTensors

    def make_stacks(self, session: Session) -> NativeStacks:
        """Return the table of stacks."""
        self._stacks = NativeStacks(session.source, self.recording, self.extension)
        return self._stacks

    def open(self, session: Session, outermost: int) -> None:
        """Start the recording; this thread becomes number 0."""
        self.recording.open(
            session.with_ops, session.with_stacks, session.with_fingerprints, session.with_norms,
            session.with_memory, outermost, _clone_code(), _SUBCLASS_CODES, FakeTensor,
        )  # fmt: skip
        for state in self.threads:
            state.number = self._attach(state)

    def close(self) -> None:
        """End the recording."""
        self.recording.close()

    def _attach(self, state: ThreadState) -> int:
        """Let C++ read the open calls, modules and regions of this thread; return its number.

        Before the recording is open there is only the thread that prepares it.
        """
        if not self.recording.is_open():
            return 0
        number = self.recording.attach(state.calls, state.modules, state.regions)
        self.recording.suspend(state.suspended)
        return number

    def event_count(self) -> int:
        """Return the number of events so far; 0 while the recording is closed."""
        return self.recording.event_count() if self.recording.is_open() else 0

    def flush(
        self,
        session: Session,
        kinds: Collection[type[Event]] | None,
        *,
        least: int,
        compress: bool,
    ) -> UndecodedRows | None:
        """Move the events that C++ holds to the log; see ``Session.flush``."""
        if self.recording.buffered() < least:
            return None
        for hook_point, tensors in self.recording.take_limits():
            session.limit(hook_point, LIMITS[hook_point].format(kind=tensors))
        log = session.log
        batch = self.recording.take()
        log.extend_rows(FrameSeen, self._stacks.describe(frames_of(batch)))
        batch.drop_codes()
        rows = UndecodedRows(batch)
        for kind, values in rows.take(KINDS if kinds is None else kinds):
            log.recent(kind).append(values)
            if kind in _SORTED:
                log.recent(kind).sort()
        if not rows.counts:
            return None
        if compress:
            rows.compress()
        log.segments.add(rows)
        return rows

    def make_tables(self, session: Session) -> Tables:
        """Return the first tables."""
        recording = self.recording
        self._contents = NativeFingerprints(session, recording)
        self._recent = NativeRecentTensors(recording)
        return Tables(
            tensors=NativeTensors(recording),
            versions=recording,
            contents=self._contents,
            recent=self._recent,
            functions=NativeFunctions(recording),
            saves=NativeSaves(session, recording),
        )

    def make_graph_tables(
        self,
        session: Session,
        *,
        leaves: LeafTable,
        modules: ModuleTable,
        saves: SaveTable,
        functions: CustomFunctionTable,
        gradients: GradientTable,
    ) -> GraphTables:
        """Return the other tables."""
        nodes = NativeNodes(session, self.recording, leaves, saves, functions)
        runs = NativeRuns(self.recording, nodes, gradients)
        return GraphTables(
            nodes, runs, NativeModuleCalls(session, self.recording, modules, self._recent)
        )

    def make_device_spans(self, session: Session, device_type: str) -> NativeDeviceSpans:  # noqa: ARG002
        """Record the times of nodes on devices of a type, and return what times module calls."""
        return NativeDeviceSpans(self.recording, device_type)

    def wrap_checkpoint_hooks(self, tracer: HookTracer) -> WrapHooks:
        """Return the function that wraps the hooks of checkpoint in C++."""
        hooks = CheckpointHooks(
            tracer.session, self.extension, self.recording, tracer.saves, self._contents
        )
        return hooks.wrap

    def contexts(self, session: Session) -> Iterator[AbstractContextManager[Any]]:
        """Yield the contexts in which operators are observed."""
        if session.with_ops:
            yield observe_data_reads(session, self.recording)
            yield observe_waits(session, self.recording.collective_count)
        yield self._observing()

    @contextmanager
    def _observing(self) -> Iterator[None]:
        self.recording.start()
        try:
            yield
        finally:
            self.recording.stop()

    def set_origins(self, origins: OpOrigins) -> None:
        """Distinguish operators that compiled regions call from those of the program."""
        self.recording.set_origins(origins.ask, OVERLOAD_CODE)

    def prune(self, used: AbstractSet[int], first_seq: int) -> None:
        """Forget everything dead."""
        self.recording.prune(set(used), engine_interface.MAX_WINDOWS)
        self.recording.prune_history(first_seq)
        self._stacks.prune()


@cache
def _clone_code() -> CodeType | None:
    """Return the function in which ``allow_mutation_on_saved_tensors`` clones a tensor."""
    handler = CloneArgBeforeMutateMode.__torch_dispatch__
    constants = inspect.unwrap(handler).__code__.co_consts
    inner = (each for each in constants if isinstance(each, CodeType))
    return next((code for code in inner if code.co_name == "maybe_clone"), None)
