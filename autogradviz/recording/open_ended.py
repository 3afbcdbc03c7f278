"""A recording that begins and ends in callbacks of another program, instead of a ``with`` block."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from autogradviz.errors import AutogradvizError, OutputExistsError
from autogradviz.event_log import save_new
from autogradviz.recording.lifecycle import Recording, set_outer_recording
from autogradviz.support.process_rank import current_rank
from autogradviz.support.standard_error import print_line

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from autogradviz.recording_options import RecordingOptions
    from autogradviz.trace import Trace


class OpenEndedRecording:
    """Records until ``finish`` is called.

    A recording that the program opens itself suspends it: that one is finished first, and a new
    one begins after the program's.

    Attributes:
        trace: of the newest recording; None before the first one. If a recording of the program
            itself raised, this is its trace.
        earlier: the traces of the recordings that were suspended.
    """

    def __init__(self, options: RecordingOptions) -> None:
        self._options = options
        self._model: Callable[[], torch.nn.Module | None] = _no_model
        self._recording: Recording | None = None
        self._process_id = os.getpid()
        self._outermost = 0
        self.trace: Trace | None = None
        self.earlier: list[Trace] = []

    @property
    def is_open(self) -> bool:
        """Whether it records now, in this process."""
        return (
            self._recording is not None
            and self._recording.is_open
            and os.getpid() == self._process_id
        )

    def begin(self, outermost: int = 0, model: torch.nn.Module | None = None) -> None:
        """Begin to record.

        Args:
            outermost: ``id`` of the outermost frame of recorded stacks.
            model: gives names to modules and parameters; it is not kept alive.
        """
        self._outermost = outermost
        if model is not None:
            self._model = weakref.ref(model)
        self._recording = Recording(self._options, self._model())
        self.trace = self._recording.begin(outermost)
        set_outer_recording(self)

    def finish(self, error: BaseException | None = None) -> Trace | None:
        """Stop recording; return the trace, None if nothing is recorded in this process.

        Args:
            error: the exception that ended the program; the first finding is added as a note.
        """
        recording = self._recording
        if os.getpid() != self._process_id or recording is None:
            return None
        set_outer_recording(None)
        if recording.is_open:
            missed = recording.finish(error)
            if missed is not None and missed.summary is not None:
                print_line(missed.summary.removeprefix("autogradviz "))
        self._recording = None
        return self.trace

    def suspend(self) -> None:
        """Finish the recording, because the program begins one of its own."""
        if self.is_open and self._recording is not None and self._recording.is_innermost:
            self.finish()
            self._recording = Recording(self._options, self._model())
            if self.trace is not None:
                self.earlier.append(self.trace)

    def resume(self, trace: Trace | None, error: BaseException | None) -> None:
        """Begin a new recording after the program's own one, unless that one failed."""
        if os.getpid() != self._process_id or self._recording is None or self._recording.is_open:
            return
        if error is not None:
            self.trace = trace
        else:
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
