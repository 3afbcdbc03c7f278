"""Putting the seams in and taking them out: one recording a process, and none in a forked child."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from torch.utils._python_dispatch import _get_current_dispatch_mode

from autogradviz.errors import AlreadyRecordingError
from autogradviz.recorder.checkpoint.reentrant import observe_reentrant
from autogradviz.recorder.checkpoint.selective import observe_policies
from autogradviz.recorder.checkpoint.state_diff import observe_attributes
from autogradviz.recorder.engine.backward import observe_backward
from autogradviz.recorder.engine.custom_functions import observe_custom_functions
from autogradviz.recorder.engine.hook_registration import observe_hooks
from autogradviz.recorder.engine.leaf_grads import observe_requires_grad
from autogradviz.recorder.grad_modes import observe_modes
from autogradviz.recorder.ids.versions import observe_increments, observe_restores
from autogradviz.recorder.modules import observe_modules
from autogradviz.recorder.retention.steps import observe_optimizers
from autogradviz.recorder.saved_tensors.hook_pairs import observe_packs
from autogradviz.recorder.saved_tensors.hooks_disabled import observe_disabling
from autogradviz.recorder.torch_internals.subclass_new import observe_construction
from autogradviz.recorder.torch_internals.swap_tensors import observe_swaps

if TYPE_CHECKING:
    from autogradviz.recorder.recorder import Recorder

_lock = threading.Lock()
_active: Recorder | None = None


def claim(recorder: Recorder) -> None:
    """Make a recorder the one of this process.

    Raises:
        AlreadyRecordingError: another recording is open.
    """
    global _active  # noqa: PLW0603 - one recording a process, PyTorch's state is global too
    with _lock:
        if _active is not None:
            message = "a recording is open already; close it before opening another"
            raise AlreadyRecordingError(message)
        _active = recorder


def release(recorder: Recorder) -> None:
    """Let another recording be opened."""
    global _active  # noqa: PLW0603
    with _lock:
        if _active is recorder:
            _active = None


def is_innermost(recorder: Recorder) -> bool:
    """Return whether seams can be removed here: nobody entered a dispatch mode inside ours."""
    return recorder.mode is None or _get_current_dispatch_mode() is recorder.mode


def install_seams(recorder: Recorder) -> ExitStack:
    """Install every seam, or none; return what removes them."""
    with ExitStack() as pending:
        for observe in (
            observe_packs,
            observe_custom_functions,
            observe_reentrant,
            observe_hooks,
            observe_policies,
            observe_disabling,
            observe_backward,
            observe_modules,
            observe_increments,
            observe_restores,
            observe_attributes,
            observe_modes,
            observe_requires_grad,
            observe_optimizers,
            observe_swaps,
            observe_construction,
        ):
            pending.enter_context(observe(recorder))
        if recorder.mode is not None:
            pending.enter_context(recorder.mode)
        return pending.pop_all()


def _step_aside() -> None:
    """Leave a forked child unwatched: the recording and its file are the parent's."""
    global _active, _lock  # noqa: PLW0603
    _lock = threading.Lock()  # another thread may have held it
    recorder, _active = _active, None
    if recorder is not None:
        recorder.detach_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_step_aside)
