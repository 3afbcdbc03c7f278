"""One recording: a session, the hook points that fill it, and a retention policy.

Laws: recording changes nothing, keeps no tensor alive, and never breaks the user's step. A
failure in here becomes a ``RecorderFailed`` event, and one warning when the recording ends.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz._version import __version__
from autogradviz.errors import AlreadyRecordingError, RecordingStateError
from autogradviz.events import (
    OlderSavesHeld,
    RecorderLimited,
    RecordingEnded,
    RecordingInterrupted,
    RecordingStarted,
)
from autogradviz.recorder.choose_engine import choose_engine
from autogradviz.recorder.debugger_stops.match_break_conditions import StopTable
from autogradviz.recorder.hook_points import HookPoints
from autogradviz.recorder.names_in_program import LiveNames
from autogradviz.recorder.rank_and_process_groups import RankTable
from autogradviz.recorder.retention.flight_recorder import open_retention
from autogradviz.recorder.session import Session
from autogradviz.recorder.torch_internals.private_api import require_private_api
from autogradviz.recorder.torch_internals.wrapper_tensors import (
    NO_OPS_WITH_LAZY,
    has_lazy_backend,
)
from autogradviz.recorder.verify.verify_each_node_as_it_runs import Verifier
from autogradviz.support.locks_gc_and_stderr import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from autogradviz.event_log import Log
    from autogradviz.events import Event
    from autogradviz.recorder.recorder_failures import Failures
    from autogradviz.recorder.retention.retention_policy_and_saves_by_step import RetentionPolicy
    from autogradviz.recording_options import RecordingOptions

_lock: Final = new_lock()
_active: Recorder | None = None


class Recorder:
    """Records PyTorch on eager CPU and CUDA into a log."""

    def __init__(self, options: RecordingOptions) -> None:
        """Prepare a recording.

        Args:
            options: of the recording; its path is that of the file to write.

        Raises:
            NativeBuildError: the native engine was chosen and cannot be used.
            UnsupportedTorchError: this PyTorch lacks a private name that recording needs.
        """
        require_private_api()
        self._refuses_ops = options.ops and has_lazy_backend()
        engine = choose_engine(
            options.engine,
            reads_contents=options.fingerprints or options.norms,
            stops=bool(options.break_on),
            verifies=bool(options.verify),
            annotates=options.annotate_memory,
        )
        self.session = Session(
            engine,
            ops=options.ops and not self._refuses_ops,
            stacks=options.stacks,
            fingerprints=options.fingerprints,
            norms=options.norms,
            memory=options.memory,
        )
        self.session.fake_mode = options.fake_mode
        self.session.with_addresses = options.annotate_memory
        self.session.with_device_time = options.device_time
        if options.break_on:
            self.session.stops = StopTable(self.session, options.break_on)
        if options.verify:
            module = options.verify if isinstance(options.verify, str) else None
            self.session.verifier = Verifier(self.session, module)
        self.hook_points = HookPoints(self.session)
        self.ranks = RankTable(self.session, self.hook_points.modules)
        self.retention: RetentionPolicy | None = None
        self.live_names = LiveNames(())
        """The names of the modules that were alive when the recording ended."""
        self._installed = ExitStack()
        self._options = options

    def start(self, model: torch.nn.Module | None, outermost: int) -> None:
        """Install every hook.

        Args:
            model: provides names of modules and parameters, or None.
            outermost: ``id`` of the frame that opened the recording; stacks end there.

        Raises:
            AlreadyRecordingError: another recording is open.
        """
        _set_active(self)
        try:
            self._begin(model, outermost)
            if self._refuses_ops:
                self.session.emit(RecorderLimited, "ops", NO_OPS_WITH_LAZY)
            self._installed = self.hook_points.install()
        except BaseException:
            if self.retention is not None:
                self.retention.abandon()
            self._close()
            raise

    def _begin(self, model: torch.nn.Module | None, outermost: int) -> None:
        session = self.session
        session.open(outermost)
        session.emit(
            RecordingStarted,
            time.time_ns(),
            __version__,
            str(torch.__version__),
            platform.python_version(),
            None if model is None else type(model).__name__,
            session.options,
        )
        session.guarded("ranks", self.ranks.read_rank)
        self.hook_points.steps.listeners.append(self._read_ranks)
        self.retention = open_retention(
            session,
            self.hook_points,
            self.snapshot_log,
            self._options.keep_steps,
            self._options.path,
        )
        if model is not None:
            self.hook_points.name_modules(model)
            if self.session.stops is not None:
                self.session.stops.name_tensors(model)

    def _read_ranks(self, _end_seq: int) -> None:
        """Record new process groups; a step has ended."""
        self.session.guarded("ranks", self.ranks.read)
        if self.ranks.has_rank:
            self.session.guarded("leaves", self.hook_points.gradients.find_gradients)

    def stop(self, error: BaseException | None) -> Log:
        """Remove every hook and return the log.

        Args:
            error: the exception that is leaving the recorded block, or None.
        """
        retention, session, log = self.retention, self.session, self.session.log
        guarded = session.always_guarded
        try:
            guarded("remove", self._installed.close)
            session.guarded("ranks", self.ranks.read, at_end=True)
            session.guarded("ranks", self.ranks.end_step)
            self.hook_points.finish(error)
            self.live_names = LiveNames(guarded("modules", self.hook_points.modules.since, 0) or ())
            guarded("failures", session.report_failures)
            if self.ranks.has_rank:
                session.guarded("leaves", self.hook_points.gradients.read_parameters)
            if retention is None:
                guarded("file", session.flush, ())
            else:
                guarded("file", retention.prepare_to_read)
                guarded("file", retention.write)
            guarded("file", self._end, log)
            if retention is not None:
                guarded("file", retention.finish)
        finally:
            self._close()
            log.sort()
        return log

    def _end(self, log: Log) -> None:
        """Append the events that a log lacks, and its end."""
        retention = self.retention
        missing = None if retention is None else retention.missing(log)
        if missing is not None:
            self._append(log, RecorderLimited, "keep_steps", missing)
            held = None if retention is None else retention.older_held(log)
            if held is not None:
                self._append(log, OlderSavesHeld, *held)
        on_disk = retention.dropped if retention is not None and missing is None else 0
        recorder_ns = self.session.engine.recorder_time_ns()
        self._append(log, RecordingEnded, on_disk + len(log), recorder_ns)

    def _append(self, log: Log, kind: type[Event], *values: Any) -> None:
        sequence = self.session.sequence
        thread = self.session.threads.local.state.number
        row = (sequence.next(), sequence.time_ns(thread), thread, None, *values)
        log.extend_rows(kind, [row])

    def snapshot_log(self) -> Log:
        """Return a log of the events in memory; the recording continues.

        Raises:
            RecordingStateError: in a forked child, where nothing is recorded.
        """
        if not self.session.is_open:
            message = "this process was forked while recording; the trace is its parent's"
            raise RecordingStateError(message)
        if self.retention is None:
            self.session.flush()
        else:
            self.retention.prepare_to_read()
        log = self.session.log.copy()
        log.sort()
        self._end(log)
        return log

    def interrupt(self, reason: str) -> None:
        """Record where the main thread stands, and write all events to the file if there is one.

        May be called from another thread.
        """
        frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001
        session = self.session
        stack_id = None
        if frame is not None and session.with_stacks:
            stack_id = session.stacks.of_frame(frame)
        session.emit(RecordingInterrupted, reason, stack_id=stack_id, thread=0)
        if self.retention is not None:
            self.retention.write_now()

    def _close(self) -> None:
        try:
            self.session.close()
        except Exception as error:  # noqa: BLE001 - the exception of the user must leave the block
            self.session.failures.add("close", f"{type(error).__name__}: {error}")
        finally:
            _clear_active(self)

    def detach_after_fork(self) -> None:
        """Record nothing more: this process was forked from the one that records."""
        self.session.detach_after_fork()
        if self.retention is not None:
            self.retention.abandon()
        self._installed.close()

    def record_graph(self, model: torch.nn.Module | None, roots: list[Any]) -> Log:
        """Return a log of the graphs of some nodes, without installing any hook.

        Args:
            model: provides names of parameters, or None.
            roots: autograd nodes.
        """
        session, hook_points = self.session, self.hook_points
        try:
            self._begin(model, 0)
            session.sequence.set_due(sys.maxsize)  # a short log is not worth compressing
            hook_points.walk(roots)
            session.flush()
            recorder_ns = session.engine.recorder_time_ns()
            session.emit(RecordingEnded, session.event_count, recorder_ns)
            session.close()
            hook_points.untag(roots)
        finally:
            session.close()
        session.log.sort()
        return session.log

    @property
    def optimizer_calls(self) -> int:
        """How many calls of ``step`` of optimizers returned, also those of dropped steps."""
        return self.hook_points.steps.optimizer_calls

    def add_step_listener(self, listener: Callable[[int], None]) -> None:
        """Call a function after each step with the number of events so far."""
        self.hook_points.steps.listeners.append(listener)

    def can_stop(self) -> bool:
        """Return whether the recording can end now: no dispatch mode was entered later."""
        return self.hook_points.can_remove()

    @property
    def unmatched_stops(self) -> list[str]:
        """A line for each condition that did not open the debugger."""
        return [] if self.session.stops is None else self.session.stops.unmatched()

    @property
    def failures(self) -> Failures:
        """The failures of the recorder itself."""
        return self.session.failures


def _set_active(recorder: Recorder) -> None:
    """Make a recorder the active one of this process."""
    global _active  # noqa: PLW0603 - one recording a process: PyTorch's state is global too
    with _lock:
        if _active is not None:
            message = "a recording is open already; close it before opening another"
            raise AlreadyRecordingError(message)
        _active = recorder


def _clear_active(recorder: Recorder) -> None:
    """Allow another recording to be opened."""
    global _active  # noqa: PLW0603
    with _lock:
        if _active is recorder:
            _active = None


def _detach_child() -> None:
    """Stop recording in a forked child: the recording and its file are the parent's."""
    global _active
    recorder, _active = _active, None
    if recorder is not None:
        recorder.detach_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_detach_child)
