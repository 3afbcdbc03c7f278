"""Conversion of the scene of a run to the payload that the viewer reads.

The payload is the scene as JSON, with the cells as little-endian numbers in base64.
"""

from __future__ import annotations

import base64
import json
import sys
import zlib
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from array import array

    from autogradviz.distributed_runs.scene.schema import RunScene

RUN_SCHEMA: Final = 1
"""1: the first."""


def to_run_payload(scene: RunScene) -> dict[str, Any]:
    """Return a scene as plain values, ready for JSON."""
    found: dict[str, Any] = {"schema": RUN_SCHEMA}
    for field in fields(scene):
        value = getattr(scene, field.name)
        if field.name == "cells":
            names = [each.name for each in fields(value)]
            found["cells"] = {name: _encode(getattr(value, name)) for name in names}
        elif isinstance(value, tuple):
            found[field.name] = [
                asdict(each) if hasattr(each, "__dataclass_fields__") else each for each in value
            ]
        else:
            found[field.name] = value
    return found


def pack_run(scene: RunScene) -> bytes:
    """Return the payload of a scene as JSON in zlib format."""
    text = json.dumps(to_run_payload(scene), separators=(",", ":"))
    return zlib.compress(text.encode(), level=6)


def _encode(numbers: array[Any]) -> str:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
