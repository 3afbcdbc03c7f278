"""Policies that decide which steps and saves are kept."""

from __future__ import annotations

import sys
import threading
import warnings
from bisect import bisect_right
from collections import deque
from contextlib import suppress
from math import isfinite
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from autogradviz.errors import AutogradvizError, AutogradvizWarning
from autogradviz.event_log import save_new
from autogradviz.events import NormRead, ParameterSeen, TensorSaved, TensorSeen, field_names
from autogradviz.recorder.ops.hashes_norms_and_draws import below_autograd, readable
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction
from autogradviz.recorder.user_code_frames import is_library
from autogradviz.support.defer_signals import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from autogradviz.event_log import Log, Stream
    from autogradviz.recorder.hook_points import HookPoints
    from autogradviz.recorder.session import Session


# --- retention policy base ------------------------------------------------------------------------
#
# The base class of retention policies: it acts after steps, and when there are many events.


class RetentionPolicy:
    """Decides which events of a recording stay in memory; acts at steps and when there are many."""

    stream: Stream | None = None
    """The file to which all events are written, or None."""

    watch: LossWatch | None = None
    """Writes the last steps when a loss is not finite, or None."""

    flush_bytes = 0
    """The bytes of events from which on C++ hands them over."""

    dropped = 0
    """The number of events that are no longer in memory."""

    def __init__(self, session: Session, hook_points: HookPoints, batch: int) -> None:
        """Attach to a recording.

        Args:
            session: of the recording.
            hook_points: of the recording; its tables are pruned.
            batch: how many events may come before the policy acts, however long a step is.
        """
        self._session = session
        self._hook_points = hook_points
        self._log = session.log
        self._batch = batch
        self._busy = threading.Lock()
        hook_points.steps.listeners.append(self.step_ended)
        session.sequence.on_due = self.on_due
        session.sequence.set_due(batch)

    def step_ended(self, end_seq: int) -> None:
        """Act after a step; ``end_seq`` is the number of the first event after it."""
        if self._busy.acquire(blocking=False):
            try:
                with uninterrupted():
                    self.flush(self.flush_bytes)
                    self._after_step(end_seq)
            finally:
                self._busy.release()

    def on_due(self, seq: int) -> None:
        """Act in the middle of a step; ``seq`` is the number of the newest event."""
        self._session.sequence.set_due(seq + self._batch)
        if self._busy.acquire(blocking=False):
            try:
                with uninterrupted():
                    self.flush(self.flush_bytes)
                    self._during_step(seq)
            finally:
                self._busy.release()

    def _after_step(self, end_seq: int) -> None:
        raise NotImplementedError

    def _during_step(self, seq: int) -> None:
        raise NotImplementedError

    def write_now(self) -> None:
        """Write all events to the file, if there is one; not if another thread is writing."""
        if self.stream is not None and self._busy.acquire(timeout=1.0):
            try:
                self.flush()
                self.write()
            finally:
                self._busy.release()

    def flush(self, least: int = 0) -> None:
        """Move the events that C++ holds to the log, if there are at least so many bytes."""
        raise NotImplementedError

    def prepare_to_read(self) -> None:
        """Move all events to the log, which then holds what the policy keeps."""
        self.flush()

    def write(self) -> None:
        """Write the events to the file that are not in it yet, if there is a file."""

    def finish(self) -> None:
        """Write the last events and end the file."""

    def abandon(self) -> None:
        """Detach from the file without writing: this is a forked child, or the recording failed."""
        self._session.sequence.set_due(sys.maxsize)

    def older_held(self, log: Log) -> tuple[int, int] | None:  # noqa: ARG002 - as in ``missing``
        """Return the bytes that dropped steps hold, and their number; None if no step holds any."""
        return None

    def missing(self, log: Log) -> str | None:  # noqa: ARG002 - subclasses drop some
        """Return a one-line description of the events that a log lacks, None if it is complete."""
        return None


# --- the saved tensors that dropped steps hold, for example because a list keeps their losses -----
#
# Only saves that are still held are known to the engine, so a step that releases everything leaves
# nothing here. Saves through hooks are not counted: what holds them is known to the hooks.


_MANY: Final = 4_096  # steps from which on those that hold nothing are forgotten


class StepSaves:
    """The saves at which steps ended."""

    def __init__(self, held_saves: Callable[[], dict[int, int]]) -> None:
        """Take the function that returns the saves that are held, each with its tensor."""
        self._held_saves = held_saves
        self._ends: list[int] = []  # for each step the first save after it, in ascending order
        self._forget_at = _MANY

    def step_ended(self, saved_count: int) -> None:
        """Remember the number of saves so far."""
        self._ends.append(saved_count)
        if len(self._ends) >= self._forget_at:
            # A step without saves becomes a part of the next one.
            self._ends = [self._ends[step] for step in sorted(self._steps_of(self._held_saves()))]
            self._forget_at = 2 * len(self._ends) + _MANY

    def _steps_of(self, saves: dict[int, int]) -> set[int]:
        """Return the places of the steps that made some saves; the last step is not over."""
        places = {bisect_right(self._ends, saved_id) for saved_id in saves}
        places.discard(len(self._ends))
        return places

    def older_held(self, log: Log) -> tuple[int, int] | None:
        """Return the bytes that steps hold which are not in a log, and the number of these steps.

        A storage that a step in the log holds too is not counted, nor are parameters and buffers.
        """
        in_log = {saved_id for (saved_id,) in log.fields(TensorSaved, "saved_id")}
        held = self._held_saves()
        older = {each: tensor for each, tensor in held.items() if each not in in_log}
        if not older:
            return None
        tensors = {
            tensor_id: (storage_id, nbytes)
            for tensor_id, storage_id, nbytes in log.fields(
                TensorSeen, "tensor_id", "storage_id", "storage_nbytes"
            )
        }
        counted = [tensor for each, tensor in held.items() if each in in_log]
        counted += [tensor for (tensor,) in log.fields(ParameterSeen, "tensor_id")]
        others = {tensors[tensor][0] for tensor in counted if tensor in tensors}
        holding = {
            each: tensors[tensor]
            for each, tensor in older.items()
            if tensor in tensors and tensors[tensor][0] not in others | {None}
        }
        steps = len({bisect_right(self._ends, each) for each in holding})
        return (sum(dict(holding.values()).values()), steps) if holding else None


# --- watch gradients ------------------------------------------------------------------------------
#
# Looks for the first gradient that is not finite; from then on, contents of tensors are recorded.
#
# NOTE [ What begins late ] Which operator gave a NaN can be read only while operators run. When a
# backward has ended with one, its forward is over, and reading the contents of every step would
# cost too much. So contents are recorded from the next operator on: of the rest of this step, as
# with accumulated gradients, and of the next steps. A training that skips a bad step then has the
# line at the next bad one. After as many finite steps as are kept, it costs nothing again: with
# scaled losses, gradients overflow now and then.


SHARE: Final = 0.01
"""Of the time, for reading the norms of gradients while all are finite."""


class GradientWatch:
    """Switches fingerprints on when a gradient is not finite, and off after finite steps."""

    def __init__(self, session: Session, hook_points: HookPoints, steps: int) -> None:
        """Attach to a recording.

        Args:
            session: of the recording, which has no fingerprints.
            hook_points: of the recording.
            steps: after how many finite steps fingerprints are switched off.
        """
        self._session = session
        self._gradients = hook_points.gradients
        self._steps = steps
        self._left = 0  # steps for which contents are recorded
        self._due = monotonic()
        self._pending: PendingLoss | None = None  # the sum of norms on a device
        hook_points.backwards.watch = self
        hook_points.steps.listeners.append(self._step_ended)

    def backward_ended(self, backward_id: int) -> None:
        """Read the gradients of a backward, if that takes a small share of time."""
        is_on = self._session.with_fingerprints
        now, began = monotonic(), thread_time()
        if not is_on and now < self._due:
            return
        if self._is_bad(backward_id):
            self._left = self._steps + 1
            if not is_on:
                self._session.set_fingerprints(True)
        self._due = now + (thread_time() - began) / SHARE

    def _is_bad(self, backward_id: int) -> bool:
        """Return whether a gradient is not finite, on a device one of an earlier backward."""
        found = [norm for _, norm in self._gradients.norms_since(backward_id, on_devices=True)]
        if any(norm is None for norm in found):
            return True
        with DisableTorchFunction(), below_autograd():
            return self._is_bad_on_device([norm for norm in found if type(norm) is not float])

    def _is_bad_on_device(self, norms: list[Any]) -> bool:
        pending, is_bad = self._pending, False
        if pending is not None and pending.has_arrived:
            is_bad = not pending.is_finite
            pending = None
        if norms and pending is None:
            first = norms[0].device
            sums = torch.stack([norm.float() for norm in norms if norm.device == first])
            pending = copy_to_host(sums.sum(), 0)
        self._pending = pending
        return is_bad

    def _step_ended(self, end_seq: int) -> None:  # noqa: ARG002 - a listener
        if self._left:
            self._left -= 1
            if not self._left:
                self._session.set_fingerprints(False)


# --- write steps on bad loss ----------------------------------------------------------------------
#
# Checks the losses of a long training; the first that is not finite makes it write the last steps.
#
# NOTE [ Without waiting ]
# A loss on the CPU can be read when its step ends. One on another device is copied to pinned memory
# and read when the copy has arrived, about one step later: nothing waits for the device. Gradients
# are not read: a NaN in them is in the next step's loss, while this step is still in memory, and
# infinite gradients are normal if losses are scaled.


_PLACE, _NORM = (field_names(NormRead).index(name) for name in ("place", "norm"))


class PendingLoss(NamedTuple):
    """A loss on its way to the host."""

    step: int
    value: torch.Tensor | float
    copied: Any  # an event of its device; None if no copy was needed

    @property
    def has_arrived(self) -> bool:
        """Whether it can be read without waiting."""
        return self.copied is None or bool(self.copied.query())

    @property
    def is_finite(self) -> bool:
        """Whether it is neither infinite nor NaN."""
        if isinstance(self.value, float):
            return isfinite(self.value)
        return bool(torch.isfinite(self.value).all())


def copy_to_host(loss: torch.Tensor | float, step: int) -> PendingLoss:
    """Start to copy a loss to the host."""
    if isinstance(loss, float) or loss.is_cpu:
        return PendingLoss(step, loss, None)
    value = torch.empty_like(loss, device="cpu", pin_memory=True)
    value.copy_(loss, non_blocking=True)
    copied = torch.Event(loss.device)
    copied.record()
    return PendingLoss(step, value, copied)


class LossWatch:
    """Writes the events in memory, once, when a loss is not finite."""

    def __init__(
        self, session: Session, hook_points: HookPoints, snapshot_log: Callable[[], Log], path: Path
    ) -> None:
        self._session = session
        self._steps = hook_points.steps
        self._gradients = hook_points.gradients
        self._snapshot_log = snapshot_log
        self._path = path
        self._backward_id = -1  # of the newest loss that was read
        self._pending: deque[PendingLoss] = deque()
        self._done = False
        self.written = False
        """Whether the file was written."""

    def check(self) -> None:
        """Check the losses that have arrived; a step has ended."""
        if self._done:
            return
        with DisableTorchFunction(), below_autograd():
            step = self._first_bad()
        if step is not None:
            self._done = True
            self._write(step)

    def _first_bad(self) -> int | None:
        """Return the first step whose loss is not finite, None if none is known."""
        for backward_id, _, loss in self._gradients.losses_after(self._backward_id):
            self._backward_id = backward_id
            if isinstance(loss, float) or readable(loss):
                self._pending.append(copy_to_host(loss, self._steps.count - 1))
        while self._pending and self._pending[0].has_arrived:
            pending = self._pending.popleft()
            if not pending.is_finite:
                return pending.step
        return None

    def _write(self, step: int) -> None:
        self._gradients.read_norms()  # the trace then shows what is not finite
        try:
            save_new(self._snapshot_log(), self._path)
        except (OSError, AutogradvizError) as error:
            self._session.fail("file", error)
            return
        self.written = True
        warn_of_loss(f"the loss of step {step:,}", self._path)


def has_bad_loss(log: Log) -> bool:
    """Return whether any loss of a finished recording is not finite."""
    return any(row[_PLACE] == "root" and row[_NORM] is None for row in log.rows(NormRead))


def warn_of_loss(loss: str, path: Path) -> None:
    """Warn that a loss is not finite; never raise, even with a filter of "error"."""
    message = f"{loss} is not finite; the last steps are in {path}"
    with suppress(AutogradvizWarning):
        warnings.warn(message, AutogradvizWarning, stacklevel=_level_of_user())


def _level_of_user() -> int:
    """Return the ``stacklevel`` of the innermost frame of the user's code, for the caller."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - the same in every CPython
    while is_library(frame.f_code.co_filename) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level
