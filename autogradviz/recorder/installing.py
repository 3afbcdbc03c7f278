"""Every seam, installed together: all of them, or none."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from autogradviz.recorder.backward import observe_backward
from autogradviz.recorder.customs import observe_custom_saves
from autogradviz.recorder.leaves import observe_requires_grad
from autogradviz.recorder.modes import observe_modes
from autogradviz.recorder.modules import observe_modules
from autogradviz.recorder.packs import observe_packs
from autogradviz.recorder.reentrant import observe_reentrant
from autogradviz.recorder.registrations import observe_hooks
from autogradviz.recorder.selective import observe_policies
from autogradviz.recorder.state import observe_attributes
from autogradviz.recorder.surroundings import observe_disabling
from autogradviz.recorder.versions import observe_increments

if TYPE_CHECKING:
    from autogradviz.recorder.recorder import Recorder

_SEAMS: Final = (
    observe_packs,
    observe_custom_saves,
    observe_reentrant,
    observe_hooks,
    observe_policies,
    observe_disabling,
    observe_backward,
    observe_modules,
    observe_increments,
    observe_attributes,
    observe_modes,
    observe_requires_grad,
)


def install(recorder: Recorder) -> ExitStack:
    """Install every seam and the dispatch mode; closing what is returned removes them all."""
    with ExitStack() as pending:
        for observe in _SEAMS:
            pending.enter_context(observe(recorder))
        if recorder.mode is not None:
            pending.enter_context(recorder.mode)
        return pending.pop_all()
