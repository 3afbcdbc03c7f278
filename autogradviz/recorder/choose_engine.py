"""The choice between the native engine and the one written in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from autogradviz.errors import NativeBuildError
from autogradviz.recorder.native import background_build, build
from autogradviz.recorder.native.engine import NativeEngine
from autogradviz.recorder.python_engine.engine import PythonEngine

if TYPE_CHECKING:
    from autogradviz.recorder.engine_interface import Engine
    from autogradviz.recording_options import EngineName


def choose_engine(
    name: EngineName,
    *,
    reads_contents: bool,
    stops: bool = False,
    verifies: bool = False,
    annotates: bool = False,
) -> Engine:
    """Return the engine that is to observe PyTorch.

    Args:
        name: "native", "python", or "auto" for the native one if it can be used. If it only has to
            be built, "auto" starts a build in the background.
        reads_contents: hashes or norms of contents are recorded.
        stops: some events are to open the debugger.
        verifies: gradients are verified.
        annotates: addresses of saved tensors are recorded.

    Raises:
        NativeBuildError: the native engine was chosen and cannot be used.
    """
    if name == "python":
        return PythonEngine("it was chosen")
    refused = (
        (annotates, "the native engine does not read addresses (annotate_memory)"),
        (verifies, "the native engine does not verify gradients (verify)"),
        (stops, "the native engine cannot open a debugger (break_on)"),
        (
            reads_contents and torch.accelerator.is_available(),
            "the native engine does not read contents on an accelerator",
        ),
    )
    problem = next((text for applies, text in refused if applies), None)
    if problem is None:
        status = build.status()
        if status.usable:
            return NativeEngine(status.extension)
        problem = status.reason
        if name == "auto":
            problem = background_build.start_if_wanted() or problem
    if name == "native":
        message = f"the native engine cannot be used: {problem}"
        raise NativeBuildError(message)
    return PythonEngine(problem)
