"""One recording from begin to finish: what ``record`` and ``autogradviz run`` share."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from autogradviz import event_log
from autogradviz.errors import AutogradvizError, RecordingStateError
from autogradviz.event_log.log import LogSource
from autogradviz.recording.interruption_watch import InterruptionWatch, LastStepsFile
from autogradviz.recording.tracebacks_without_own_frames import remove_recorder_frames
from autogradviz.support.defer_and_redeliver_signals import uninterrupted
from autogradviz.support.locks_gc_and_stderr import print_line
from autogradviz.support.rank_and_trace_paths import current_rank, is_folder_path, trace_path
from autogradviz.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch

    from autogradviz.event_log import Log
    from autogradviz.recorder import Recorder
    from autogradviz.recorder.recorder_failures import Failures
    from autogradviz.recording_options import RecordingOptions
    from autogradviz.support.rank_and_trace_paths import PathLike


class OuterRecording(Protocol):
    """Records a whole program, and is suspended while the program records something itself."""

    def suspend(self) -> None:
        """Close the recording: another one is about to begin."""

    def resume(self, trace: Trace | None, error: BaseException | None) -> None:
        """Continue after the other recording has ended.

        Args:
            trace: the trace of the other recording; None if it could not begin.
            error: the exception that left the other recording.
        """


_outer: OuterRecording | None = None


def set_outer_recording(outer: OuterRecording | None) -> None:
    """Set the recording that later recordings suspend; None for none."""
    global _outer  # noqa: PLW0603 - one recording a process
    _outer = outer


class Recording:
    """One recording.

    Attributes:
        trace: readable once the recording is finished.
        wrote_last_steps: whether the last steps were written to ``path``, with ``keep_steps``.
        wrote_while_open: whether that was before the recording ended, so that the file may lack
            what came later.
    """

    def __init__(self, options: RecordingOptions, model: torch.nn.Module | None = None) -> None:
        self._model = model
        self._options = options
        self._path = None if options.path is None else _own_path(options.path)
        self._last_steps: LastStepsFile | None = None
        self._watch: InterruptionWatch | None = None
        self._source = LogSource()
        self._recorder: Recorder | None = None
        self._outer: OuterRecording | None = None
        self._process_id = 0
        self._used = False
        self._optimizer_calls = 0  # when it was last read, or ended
        self.trace = Trace(self._source)
        self.wrote_last_steps = self.wrote_while_open = False

    @property
    def is_open(self) -> bool:
        """Whether the recording has begun and is not finished."""
        return self._recorder is not None

    @property
    def is_innermost(self) -> bool:
        """Whether it can be finished now: no other dispatch mode was entered after it began."""
        return self._recorder is not None and self._recorder.can_stop()

    @property
    def optimizer_calls(self) -> int:
        """How many calls of ``step`` of optimizers returned so far."""
        if self._recorder is not None:
            self._optimizer_calls = self._recorder.optimizer_calls
        return self._optimizer_calls

    def begin(self, outermost: int, on_step: Callable[[int], None] | None = None) -> Trace:
        """Begin to record.

        Args:
            outermost: ``id`` of the outermost frame of recorded stacks.
            on_step: called after each training step with the number of events so far.
        """
        if self._used:
            message = "this recording was used before; call autogradviz.record() again"
            raise RecordingStateError(message)
        try:
            with uninterrupted():
                return self._begin(outermost, on_step)
        except BaseException:  # also of a signal that arrived meanwhile
            if self._recorder is not None:
                try:
                    self._stop(self._recorder, None)
                finally:
                    self._release(None)
            raise

    def _begin(self, outermost: int, on_step: Callable[[int], None] | None) -> Trace:
        from autogradviz.recorder import Recorder

        recorder = Recorder(replace(self._options, path=self._path))
        outer = _outer
        if outer is not None:
            outer.suspend()
        try:
            recorder.start(self._model, outermost)
        except BaseException:
            if outer is not None:
                outer.resume(None, None)
            raise
        self._used = True
        self._recorder, self._outer = recorder, outer
        self._process_id = os.getpid()
        if on_step is not None:
            recorder.add_step_listener(on_step)
        self._source.copy = recorder.snapshot_log
        self._source.add_step_listener = recorder.add_step_listener
        stream = recorder.retention.stream if recorder.retention is not None else None
        self._source.path = None if stream is None else stream.path
        self._model = None
        self._watch_interruptions(recorder)
        return self.trace

    def limit(self, part: str, message: str) -> None:
        """Note in the trace, once, that a part of the recording lacks something."""
        if self._recorder is not None:
            self._recorder.session.limit(part, message)

    def finish(self, error: BaseException | None) -> Failures | None:
        """Stop recording, and add the first finding to ``error`` as a note.

        A signal whose handler raises does so when the recording has ended and can be read.

        Returns:
            What the recorder could not record; None in a forked child, where nothing is recorded.
        """
        recorder = self._recorder
        if recorder is None:
            message = "this recording is closed"
            raise RecordingStateError(message)
        if os.getpid() != self._process_id:
            self._recorder = None
            self._source.detach_after_fork()
            return None
        if self._watch is not None:
            self._watch.finishing()
        try:
            self._stop(recorder, error)
            self._explain(recorder, error)
        finally:
            self._release(error)
            if error is not None:
                remove_recorder_frames(error)
        return recorder.failures

    def _release(self, error: BaseException | None) -> None:
        """Stop to watch for interruptions, and resume the recording that was suspended."""
        try:
            if self._watch is not None:
                self._watch.stop()
        finally:
            outer, self._outer = self._outer, None
            if outer is not None:
                outer.resume(self.trace, error)

    def _stop(self, recorder: Recorder, error: BaseException | None) -> None:
        """Stop the recorder, also if a signal interrupts this before it can be deferred."""
        try:
            with uninterrupted():
                if self._recorder is not None:
                    self._recorder = None
                    try:
                        recorder.stop(error)
                    finally:
                        self._optimizer_calls = recorder.optimizer_calls
                        self._source.finish(_Return(recorder.session.log))
                        self._source.find_object = recorder.live_names.find
        except BaseException:
            if self._recorder is not None:
                self._stop(recorder, error)
            raise

    def _explain(self, recorder: Recorder, error: BaseException | None) -> None:
        """Add a note to the exception that leaves the block, and write the last steps."""
        for line in recorder.unmatched_stops:
            print_line(line)
        retention = recorder.retention
        # The file of a streamed recording holds more events than memory if some were dropped.
        stream = retention.stream if retention is not None and retention.dropped else None
        in_memory = self.trace if stream is None else Trace(recorder.session.log)
        try:
            if error is not None:
                _add_note(error, in_memory)
            self._write_last_steps(recorder, in_memory, error)
            if self._last_steps is not None:
                self._last_steps.delete()
        finally:
            if stream is not None:
                self._source.finish(partial(event_log.load, stream.path))

    def _watch_interruptions(self, recorder: Recorder) -> None:
        """Let the trace survive what ends the process, as one of several ranks."""
        rank, hang_s = current_rank(), self._options.hang_s
        is_exposed = bool(hang_s or (rank is not None and rank.world_size > 1))
        if self._path is None or not (is_exposed or self._options.survives_sigterm):
            return
        if self._options.keep_steps is not None and is_exposed:
            self._last_steps = LastStepsFile(self._path, recorder.snapshot_log)
            recorder.add_step_listener(self._last_steps.step_ended)
        self._watch = InterruptionWatch(self._interrupted, self._count_events, hang_s)
        self._watch.start()

    def _count_events(self) -> int:
        """Return the number of events so far, 0 while the recording ends; the watch calls it."""
        recorder = self._recorder
        try:
            return 0 if recorder is None else recorder.session.event_count
        except RuntimeError:  # the main thread has just closed it
            return 0

    def _interrupted(self, reason: str) -> None:
        """Write the trace; the process is about to end, or hangs."""
        recorder, path = self._recorder, self._path
        if recorder is None or path is None:
            return
        try:
            recorder.interrupt(reason)
            retention = recorder.retention
            if retention is None or retention.stream is None:
                event_log.save(recorder.snapshot_log(), path)
                self.wrote_last_steps = self.wrote_while_open = True
        except Exception as error:  # noqa: BLE001 - the signal must end the process in any case
            text = f"{reason}; the trace could not be written: {error}"
        else:
            text = f"{reason}; the trace is in {path}"
        print_line(text)

    def _write_last_steps(
        self, recorder: Recorder, trace: Trace, error: BaseException | None
    ) -> None:
        """Write the last steps if the block raised or a loss is not finite, and none are written.

        If writing fails, the error is reported with the recorder's own failures.
        """
        from autogradviz.recorder.retention.watch_losses_and_gradients import (
            has_bad_loss,
            warn_of_loss,
        )

        watch = None if recorder.retention is None else recorder.retention.watch
        if watch is None or self._path is None:
            return
        self.wrote_while_open = self.wrote_while_open or watch.written
        self.wrote_last_steps = self.wrote_last_steps or watch.written
        if self.wrote_last_steps or (error is None and not has_bad_loss(trace.log)):
            return
        try:
            event_log.save_new(trace.log, self._path)
        except (OSError, AutogradvizError) as failure:
            recorder.failures.add("file", f"{type(failure).__name__}: {failure}")
            return
        self.wrote_last_steps = True
        if error is None:
            warn_of_loss("a loss", self._path)


class _Return:
    """Returns a log; unlike a function inside another one it can be pickled."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __call__(self) -> Log:
        return self._log


def _own_path(path: PathLike) -> Path:
    """Return the absolute path of this process's trace."""
    rank = current_rank() if is_folder_path(path) else None
    own = trace_path(path)
    return own if rank is None else event_log.path_of_rank(own.parent, rank)


def _add_note(error: BaseException, trace: Trace) -> None:
    """Add the first finding to an exception as a note, which every traceback shows."""
    from autogradviz.render.terminal_text import add_note, finding_note

    try:
        for finding in trace.diagnose()[:1]:
            add_note(error, finding_note(finding))
    except Exception as failure:  # noqa: BLE001 - the exception of the user must leave the block
        add_note(error, f"autogradviz could not explain this: {failure!r}")
