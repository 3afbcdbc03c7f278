"""Watch losses and gradients, and write the steps around the first bad one."""

from __future__ import annotations

import sys
import warnings
from collections import deque
from contextlib import suppress
from math import isfinite
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from autogradviz.errors import AutogradvizError, AutogradvizWarning
from autogradviz.event_log import save_new
from autogradviz.events import NormRead, field_names
from autogradviz.recorder.ops.hashes_norms_and_draws import below_autograd, readable
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction
from autogradviz.recorder.user_code_frames import is_library

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from autogradviz.event_log import Log
    from autogradviz.recorder.hook_points import HookPoints
    from autogradviz.recorder.session import Session


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
