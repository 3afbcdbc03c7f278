"""Looks for the first gradient that is not finite; from then on, contents of tensors are recorded.

NOTE [ What begins late ]
Which operator gave a NaN can be read only while operators run. When a backward has ended with one,
its forward is over, and reading the contents of every step would cost too much. So contents are
recorded from the next operator on: of the rest of this step, as with accumulated gradients, and of
the next steps. A training that skips a bad step then has the line at the next bad one. After as
many finite steps as are kept, it costs nothing again: with scaled losses, gradients overflow now
and then.
"""

from __future__ import annotations

from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.recorder.ops.fingerprints import below_autograd
from autogradviz.recorder.retention.write_steps_on_bad_loss import PendingLoss, copy_to_host
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction

if TYPE_CHECKING:
    from autogradviz.recorder.hook_points import HookPoints
    from autogradviz.recorder.session import Session

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
