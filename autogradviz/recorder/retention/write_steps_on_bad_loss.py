"""Checks the losses of a long training; the first that is not finite makes it write the last steps.

NOTE [ Without waiting ]
A loss on the CPU can be read when its step ends. One on another device is copied to pinned memory
and read when the copy has arrived, about one step later: nothing waits for the device. Gradients
are not read: a NaN in them is in the next step's loss, while this step is still in memory, and
infinite gradients are normal if losses are scaled.
"""

from __future__ import annotations

import sys
import warnings
from collections import deque
from contextlib import suppress
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from autogradviz.errors import AutogradvizError, AutogradvizWarning
from autogradviz.event_log import save_new
from autogradviz.events import NormRead, field_names
from autogradviz.recorder.ops.fingerprints import below_autograd, readable
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction
from autogradviz.recorder.user_code_frames import is_library

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from autogradviz.event_log import Log
    from autogradviz.recorder.hook_points import HookPoints
    from autogradviz.recorder.session import Session

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
