"""The choice between the native engine and the one written in Python."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from autogradviz.errors import NativeBuildError
from autogradviz.recorder.native import build

Engine: TypeAlias = Literal["auto", "native", "python"]


def choose_engine(engine: Engine, *, ops: bool, fingerprints: bool) -> Any:
    """Return the extension if it is to observe operators, None for the Python engine.

    Args:
        engine: "native", "python", or "auto" for the native one if it can be used.
        ops: operators are recorded.
        fingerprints: hashes of contents are recorded, which only the Python engine does.

    Raises:
        NativeBuildError: the native engine was chosen and cannot be used.
    """
    if engine == "python":
        return None
    status = build.status()
    usable = status.usable and ops and not fingerprints
    if engine == "native" and not usable:
        reason = (
            status.reason
            if not status.usable
            else "it records neither fingerprints nor without ops"
        )
        message = f"the native engine cannot be used: {reason}"
        raise NativeBuildError(message)
    return build.load() if usable else None
