"""The choice between the native engine and the one written in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from autogradviz.errors import NativeBuildError
from autogradviz.recorder.native import build
from autogradviz.recorder.native.session_services import NativeServices

if TYPE_CHECKING:
    from autogradviz.recording_options import Engine


class Choice(NamedTuple):
    """The engine of a recording."""

    services: NativeServices | None
    """Those of the native engine, None for the Python engine."""

    reason: str
    """Why it is the Python engine; empty for the native one."""


def choose_engine(engine: Engine, *, reads_contents: bool, stops: bool = False) -> Choice:
    """Return the engine that is to observe PyTorch.

    Args:
        engine: "native", "python", or "auto" for the native one if it can be used.
        reads_contents: hashes or norms of contents are recorded.
        stops: some events are to open the debugger.

    Raises:
        NativeBuildError: the native engine was chosen and cannot be used.
    """
    if engine == "python":
        return Choice(None, "it was chosen")
    problem = None
    if reads_contents and torch.accelerator.is_available():
        problem = "the native engine does not read contents on an accelerator"
    if stops:
        problem = "the native engine cannot open a debugger (break_on)"
    if problem is None:
        status = build.status()
        if status.usable:
            return Choice(NativeServices(status.extension), "")
        problem = status.reason
    if engine == "native":
        message = f"the native engine cannot be used: {problem}"
        raise NativeBuildError(message)
    return Choice(None, problem)
