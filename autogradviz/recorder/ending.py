"""The last looks of a recording: graphs that no backward has shown, and the exception."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from autogradviz.events import ErrorRaised

if TYPE_CHECKING:
    from autogradviz.recorder.recorder import Recorder


def walk_live_outputs(recorder: Recorder) -> None:
    """Look at graphs that no backward has shown: those of results that are still alive."""
    with torch._C.DisableTorchFunction():  # noqa: SLF001
        new = recorder.nodes.is_new
        recorder.nodes.walk([node for node in recorder.newest.nodes() if new(node)])


def record_error(recorder: Recorder, error: BaseException) -> None:
    """Record the exception that is leaving the recorded block."""
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    node_id, backward_id = recorder.backwards.failed_node or (None, None)
    recorder.emit(
        ErrorRaised,
        f"{module}{kind.__qualname__}",
        str(error),
        node_id,
        backward_id,
        stack_id=recorder.stacks.of_traceback(error.__traceback__),
    )
