"""The choice between the native engine and the one written in Python."""

from __future__ import annotations

from typing import Literal, TypeAlias

from autogradviz.errors import NativeBuildError
from autogradviz.recorder.native import build
from autogradviz.recorder.native.session_services import NativeServices

Engine: TypeAlias = Literal["auto", "native", "python"]


def choose_engine(engine: Engine, *, fingerprints: bool) -> NativeServices | None:
    """Return the services of the native engine if it is to observe operators, else None.

    Args:
        engine: "native", "python", or "auto" for the native one if it can be used.
        fingerprints: hashes of contents are recorded.

    Raises:
        NativeBuildError: the native engine was chosen and cannot be used.
    """
    if engine == "python":
        return None
    problem = "it does not record fingerprints" if fingerprints else None
    if problem is None:
        status = build.status()
        problem = None if status.usable else status.reason
    if problem is None:
        return NativeServices(build.load())
    if engine == "native":
        message = f"the native engine cannot be used: {problem}"
        raise NativeBuildError(message)
    return None

