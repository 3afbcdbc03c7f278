"""A recording that begins and ends in callbacks of another program, instead of a ``with`` block."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from autogradviz.errors import AutogradvizError, OutputExistsError
from autogradviz.event_log import save_new
from autogradviz.recording.lifecycle import Recording, set_outer_recording
from autogradviz.support.locks_gc_and_stderr import print_line
from autogradviz.support.rank_and_trace_paths import current_rank

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from autogradviz.recording_options import RecordingOptions
    from autogradviz.trace import Trace


class OpenEndedRecording:
    """Records until ``finish`` is called.

    A recording that the program opens itself suspends it: that one is finished first, and a new
    one begins after the program's. Nothing is done in a forked child.

    Attributes:
        options: of the recordings.
        trace: of the newest recording; None before the first one. If a recording of the program
            itself raised, this is its trace.
    """

    def __init__(
        self, options: RecordingOptions, *, on_suspend: Callable[[Trace], None] | None = None
    ) -> None:
        """Prepare a recording.

        Args:
            options: of the recording.
            on_suspend: called with the trace of each recording that was suspended.
        """
        self.options = options
        self.trace: Trace | None = None
        self._on_suspend = on_suspend
        self._model: Callable[[], torch.nn.Module | None] = _no_model
        self._recording: Recording | None = None  # the newest one
        self._is_finished = False
        self._process_id = os.getpid()
        self._outermost = 0

    @property
    def is_own_process(self) -> bool:
        """Whether this is the process that prepared the recording, not a forked child."""
        return os.getpid() == self._process_id

    @property
    def is_open(self) -> bool:
        """Whether it records now, in this process."""
        return self._recording is not None and self._recording.is_open and self.is_own_process

    @property
    def wrote_last_steps(self) -> bool:
        """Whether the newest recording wrote the last steps to its file."""
        return self._recording is not None and self._recording.wrote_last_steps

    @property
    def wrote_while_open(self) -> bool:
        """Whether the newest recording wrote its file before it ended, and not again."""
        return self._recording is not None and self._recording.wrote_while_open

    def begin(
        self,
        outermost: int = 0,
        model: torch.nn.Module | None = None,
        on_step: Callable[[int], None] | None = None,
    ) -> None:
        """Begin to record.

        Args:
            outermost: ``id`` of the outermost frame of recorded stacks.
            model: gives names to modules and parameters; it is not kept alive.
            on_step: called after each training step with the number of events so far.
        """
        self._outermost = outermost
        if model is not None:
            self._model = weakref.ref(model)
        self._is_finished = False
        self._recording = Recording(self.options, self._model())
        self.trace = self._recording.begin(outermost, on_step)
        set_outer_recording(self)

    def finish(self, error: BaseException | None = None) -> Trace | None:
        """Stop recording; return the trace, None if nothing is recorded in this process.

        Args:
            error: the exception that ended the program; the first finding is added as a note.
        """
        if not self.is_own_process or self._recording is None or self._is_finished:
            return None
        self._is_finished = True
        self._end(error)
        return self.trace

    def _end(self, error: BaseException | None) -> None:
        """End the recording if it is open."""
        set_outer_recording(None)
        if self._recording is None or not self._recording.is_open:
            return
        missed = self._recording.finish(error)
        if missed is not None and missed.summary is not None:
            self._report(missed.summary.removeprefix("autogradviz "))

    def _report(self, line: str) -> None:
        """Print what could not be recorded."""
        print_line(line)

    def suspend(self) -> None:
        """Finish the recording, because the program begins one of its own.

        Inside another dispatch mode, or in another thread, it cannot be finished and stays open.
        """
        if self.is_open and self._recording is not None and self._recording.is_innermost:
            self._end(None)
            if self.trace is not None and self._on_suspend is not None:
                self._on_suspend(self.trace)

    def resume(self, trace: Trace | None, error: BaseException | None) -> None:
        """Begin a new recording after the program's own one, unless that one failed."""
        if not self.is_own_process or self._is_finished or self.is_open:
            return
        if error is not None:
            self.trace = trace
        else:
            self._begin_again()

    def _begin_again(self) -> None:
        self.begin(self._outermost)


def _no_model() -> None:
    """Return no model: names of modules come from the modules that are called."""


def save_in_folder(trace: Trace, folder: Path, stem: str) -> Path:
    """Save a trace under a name that no file of a folder has, and return its path.

    Args:
        trace: the trace.
        folder: is created if it does not exist.
        stem: base name of the file; with several ranks, the number of the rank is appended.

    Raises:
        OutputExistsError: if the folder is a file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        message = f"{folder} is not a folder; remove it, or name another one."
        raise OutputExistsError(message) from None
    rank = current_rank()
    if rank is not None and rank.world_size > 1:
        stem = f"{stem}-rank-{rank.rank:05}"
    count = 1
    while True:
        path = folder / (f"{stem}.agv" if count == 1 else f"{stem}-{count}.agv")
        try:
            if not path.exists():
                save_new(trace.log, path)
                return path
        except OutputExistsError:  # another process was faster
            pass
        count += 1


def describe_saved(trace: Trace, folder: Path, stem: str) -> str:
    """Save a trace in a folder; return one line that names the file, or says why there is none."""
    try:
        path = save_in_folder(trace, folder, stem)
    except (OSError, AutogradvizError) as error:
        return f"the trace could not be written to {folder}: {error}"
    here = Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    return f"trace written to {shown}; open it with: autogradviz html {shown}"
