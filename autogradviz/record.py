"""``record``: the context manager that opens a recording and hands over its trace."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from autogradviz.deprecation import warn_deprecated
from autogradviz.errors import AutogradvizError, RecordingStateError
from autogradviz.event_log import save_new
from autogradviz.signals import uninterrupted
from autogradviz.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    import torch

    from autogradviz.recorder import Recorder
    from autogradviz.recorder.failures import Failures


class Host(Protocol):
    """Who records a whole program, and steps aside where the program records something itself."""

    def suspend(self) -> None:
        """Close the recording: another one is about to be opened."""

    def resume(self, trace: Trace | None, error: BaseException | None) -> None:
        """Go on: the other one is closed.

        Args:
            trace: the other one's, None where it could not be opened.
            error: what left it.
        """


_host: Host | None = None


def set_outer_recording(host: Host | None) -> None:
    """Give way to whatever is recorded from now on; with None to nothing any more."""
    global _host  # noqa: PLW0603 - one recording a process
    _host = host


class record:  # noqa: N801 - reads as the verb that it is, like torch.no_grad
    """Record what autograd does inside a ``with`` block.

    Observing changes nothing: gradients, random states and exceptions are what they would have
    been. An exception that leaves the block is the block's own, with the finding added as a
    note (``BaseException.add_note``), so that every traceback shows it.

    Args:
        model: gives names to modules and parameters. Optional: without it the outermost module
            that is called names them.
        fingerprints: also record a hash of every tensor's contents, to find values that differ
            without an error: recomputed ones, and saved ones written past the version counter.
            Reads every tensor twice on its device and waits for it at each operator.
        ops: record every operator. Without it only graph, saves and backward are recorded,
            which costs less; lines and versions at save are then unknown, and of the gradients
            that nodes are given only shape and type.
        stacks: record the Python line of each event.
        keep_steps: hold only that many of the last steps in memory, however long the recording
            is. A step ends when an optimizer has stepped, or with each backward where none is
            used. ``trace.snapshot()`` gives what is held at any time.
        path: write the trace to this file while it is recorded, so that a killed process leaves
            it too; events are then not all held in memory. With ``keep_steps`` the last steps
            are written there when an exception leaves the block, or as soon as a loss is NaN or
            infinite, with one warning; what is written first stays. Never over another file. If
            writing fails, training goes on, and so does the recording, with the last steps.
        values: deprecated name of ``fingerprints``.

    Raises:
        TypeError: ``model`` is not an ``nn.Module``.
        ValueError: ``keep_steps`` is not a whole number from 1.
        FileExistsAlreadyError: on entering, when there is something at ``path``.
        AlreadyRecordingError: on entering, when another recording is open.
        RecordingStateError: on entering the same object a second time.
        UnsupportedTorchError: on entering, when this PyTorch lacks a seam.

    Example:
        >>> with autogradviz.record(model) as trace:  # doctest: +SKIP
        ...     model(x).sum().backward()
        >>> trace.diagnose()  # doctest: +SKIP
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        *,
        fingerprints: bool = False,
        ops: bool = True,
        stacks: bool = True,
        keep_steps: int | None = None,
        path: str | os.PathLike[str] | None = None,
        values: bool | None = None,
    ) -> None:
        if values is not None:
            warn_deprecated("record(values=...)", "record(fingerprints=...)")
            fingerprints = values
        if model is not None:
            _require_module(model)
        if keep_steps is not None and not (isinstance(keep_steps, int) and keep_steps >= 1):
            message = f"keep_steps is a whole number from 1, not {keep_steps!r}"
            raise ValueError(message)
        self._model = model
        self._ops = ops
        self._stacks = stacks
        self._fingerprints = fingerprints
        self._keep_steps = keep_steps
        self._path = None if path is None else Path(path).absolute()
        self._trace = Trace()
        self._recorder: Recorder | None = None
        self._host: Host | None = None
        self._process = 0
        self._used = False
        self.written = False
        """Whether the last steps were written to ``path``, where ``keep_steps`` asked for them."""

    def __enter__(self) -> Trace:
        return self.begin(id(sys._getframe(1)))  # noqa: SLF001 - the documented way

    def begin(self, outermost: int, on_step: Callable[[int], None] | None = None) -> Trace:
        """Open the recording.

        Args:
            outermost: ``id`` of the frame where stacks end.
            on_step: called after each step with the number of events so far.
        """
        from autogradviz.recorder import Recorder

        if self._used:
            message = "this recording was used before; call autogradviz.record() again"
            raise RecordingStateError(message)
        recorder = Recorder(
            ops=self._ops,
            stacks=self._stacks,
            fingerprints=self._fingerprints,
            keep_steps=self._keep_steps,
            path=self._path,
        )
        host = _host
        if host is not None:
            host.suspend()
        try:
            with uninterrupted():
                recorder.start(self._model, outermost)
                self._used = True
                self._recorder, self._host = recorder, host
        except BaseException:
            if host is not None:
                host.resume(None, None)
            raise
        if on_step is not None:
            recorder.add_step_listener(on_step)
        self._process = os.getpid()
        self._trace.follow(recorder.snapshot_log)
        self._model = None
        return self._trace

    @property
    def is_open(self) -> bool:
        """Whether the recording has begun and has not been closed."""
        return self._recorder is not None

    @property
    def is_innermost(self) -> bool:
        """Whether it can be closed here: no other dispatch mode was entered inside it."""
        return self._recorder is not None and self._recorder.can_stop()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        missed = self.finish(error)
        if missed is not None:
            missed.warn(quiet=error is not None)

    def finish(self, error: BaseException | None) -> Failures | None:
        """Close the recording, and say in a note on ``error`` what was found.

        Returns:
            What the recorder missed; None in a forked child, where nothing was recorded.
        """
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            message = "this recording is closed"
            raise RecordingStateError(message)
        if os.getpid() != self._process:
            self._trace.detach_after_fork()
            return None
        with uninterrupted():
            self._trace.fill(recorder.stop(error))
        retention = recorder.retention
        if error is not None:
            self._trace.annotate(error)
        self._write_last_steps(recorder, error)
        if retention is not None and retention.stream is not None and retention.dropped:
            self._trace.fill_from(retention.stream.path)
        if self._host is not None:
            self._host.resume(self._trace, error)
        return recorder.failures

    def _write_last_steps(self, recorder: Recorder, error: BaseException | None) -> None:
        """Write what was kept where that was asked for and is not done, if something went wrong.

        A failure is told beside the recorder's own.
        """
        from autogradviz.recorder.retention.loss_watch import has_bad_loss, warn_of_loss

        watch = None if recorder.retention is None else recorder.retention.watch
        if watch is None or self._path is None:
            return
        self.written = watch.written
        if self.written or (error is None and not has_bad_loss(self._trace.log)):
            return
        try:
            save_new(self._trace.log, self._path)
        except (OSError, AutogradvizError) as failure:
            recorder.failures.add("file", f"{type(failure).__name__}: {failure}")
            return
        self.written = True
        if error is None:
            warn_of_loss("a loss", self._path)


def _require_module(model: object) -> None:
    import torch

    if not isinstance(model, torch.nn.Module):
        message = f"record() takes an nn.Module, not {type(model).__name__}; leave it out"
        raise TypeError(message)
