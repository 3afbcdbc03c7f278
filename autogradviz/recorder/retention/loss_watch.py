"""The losses of a long training: the first that is not finite has the last steps written.

NOTE [ Without waiting ]
A loss on the CPU is there when its step ends. One on another device is copied to pinned memory,
and read when the copy has arrived, one step later or so: nothing waits for the device. Gradients
are not read: what is NaN in them is in the next step's loss, while this step is still held, and
infinite gradients are everyday where losses are scaled.
"""

from __future__ import annotations

import sys
import warnings
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from autogradviz.errors import AutogradvizError, AutogradvizWarning
from autogradviz.event_log import save_new
from autogradviz.events import NormRead, field_names
from autogradviz.recorder.ids.stacks import is_library
from autogradviz.recorder.ops.fingerprints import below_autograd, readable

if TYPE_CHECKING:
    from pathlib import Path

    from autogradviz.event_log import Log
    from autogradviz.recorder.recorder import Recorder

_NoFunctions: Final = torch._C.DisableTorchFunction  # noqa: SLF001
_PLACE, _NORM = (field_names(NormRead).index(name) for name in ("place", "norm"))


class PendingLoss(NamedTuple):
    """A loss on its way to the host."""

    step: int
    value: torch.Tensor
    arrival: Any  # an event of its device, None where it is there

    @property
    def is_there(self) -> bool:
        """Whether it can be read without waiting."""
        return self.arrival is None or bool(self.arrival.query())


def send(loss: torch.Tensor, step: int) -> PendingLoss:
    """Begin to copy a loss to the host."""
    if loss.device.type == "cpu":
        return PendingLoss(step, loss, None)
    value = torch.empty_like(loss, device="cpu", pin_memory=True)
    value.copy_(loss, non_blocking=True)
    arrival = torch.Event(loss.device)
    arrival.record()
    return PendingLoss(step, value, arrival)


class LossWatch:
    """Writes what is held, once, when a loss is not finite."""

    def __init__(self, recorder: Recorder, path: Path) -> None:
        self._recorder = recorder
        self._path = path
        self._backward_id = -1  # whose loss was sent last
        self._coming: deque[PendingLoss] = deque()
        self._done = False
        self.written = False
        """Whether the file was written."""

    def look(self) -> None:
        """Look at the losses that have come; a step has ended."""
        if self._done:
            return
        with _NoFunctions(), below_autograd():
            step = self._first_bad()
        if step is not None:
            self._done = True
            self._write(step)

    def _first_bad(self) -> int | None:
        """Return the step whose loss is not finite, None as long as none is known."""
        recorder = self._recorder
        for backward_id, _, _, loss in recorder.leaves.losses_after(self._backward_id):
            self._backward_id = backward_id
            if readable(loss):
                self._coming.append(send(loss, recorder.steps.count - 1))
        while self._coming and self._coming[0].is_there:
            step, value, _ = self._coming.popleft()
            if not bool(torch.isfinite(value).all()):
                return step
        return None

    def _write(self, step: int) -> None:
        recorder = self._recorder
        recorder.leaves.read()  # so that the trace says what is not finite
        try:
            save_new(recorder.held(), self._path)
        except (OSError, AutogradvizError) as error:
            recorder.fail("file", error)
            return
        self.written = True
        warn_of_loss(f"the loss of step {step:,}", self._path)


def has_bad_loss(log: Log) -> bool:
    """Return whether a loss of a recording that has ended is not finite."""
    return any(row[_PLACE] == "root" and row[_NORM] is None for row in log.rows(NormRead))


def warn_of_loss(loss: str, path: Path) -> None:
    """Say that a loss is not finite, and where the trace is; a strict filter ends no step."""
    message = f"{loss} is not finite; the last steps are in {path}"
    with suppress(AutogradvizWarning):
        warnings.warn(message, AutogradvizWarning, stacklevel=_level_of_user())


def _level_of_user() -> int:
    """Return how far above its caller the nearest line of the user's own code is."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - the same in every CPython
    while is_library(frame.f_code.co_filename) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    return level
