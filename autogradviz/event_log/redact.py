"""A recording without what tells of its author: source text and absolute paths."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from autogradviz.event_log.log import Log
from autogradviz.events import (
    EVENT_TYPES,
    EffectRepeated,
    FrameSeen,
    RecorderFailed,
    SourceLineRead,
    StateChanged,
    field_names,
)

if TYPE_CHECKING:
    from autogradviz.event_log.rows import Row
    from autogradviz.events import Event

_PATH: Final = re.compile(
    r"(?:(?<![\w.])~|\b[A-Za-z]:|(?<![\w./\\]))(?:[/\\](?=\S)[^/\\\n:'\"<>|]+)+"
)
"""An absolute path: of Unix, of a home folder, of Windows."""

_PUBLIC: Final = re.compile(r"[/\\]((?:torch|autogradviz)[/\\].*)$")
"""What of a path is known to everybody, and needed to tell checkpoint's frames from others."""

_EMPTIED: Final = {
    (FrameSeen, "text"): "",
    (StateChanged, "before"): "…",
    (StateChanged, "after"): "…",
    (EffectRepeated, "before"): "…",
    (EffectRepeated, "after"): "…",
    (RecorderFailed, "message"): "…",
}
"""Fields that quote source or the values of somebody's variables."""


def redact(log: Log) -> Log:
    """Return a log without source text, values of variables and folders' names.

    Of a path its last part stays: "train.py".
    """
    redacted = Log()
    redacted.problem = None if log.problem is None else without_folders(log.problem)
    for kind in EVENT_TYPES:
        if kind is not SourceLineRead:
            redacted.extend_rows(kind, [_clean(kind, row) for row in log.rows(kind)])
    return redacted


def _clean(kind: type[Event], row: Row) -> Row:
    if not any(isinstance(value, (str, tuple)) for value in row):
        return row
    return tuple(
        _EMPTIED.get((kind, name), _without(value))
        for name, value in zip(field_names(kind), row, strict=True)
    )


def _without(value: Any) -> Any:
    if isinstance(value, str):
        return without_folders(value)
    if isinstance(value, tuple) and value and isinstance(value[0], str):
        return tuple(map(without_folders, value))
    return value


@cache
def without_folders(text: str) -> str:
    """Return text in which absolute paths are their last parts."""
    return _PATH.sub(_last_part, text)


def _last_part(found: re.Match[str]) -> str:
    public = _PUBLIC.search(found[0])
    return f"…/{public[1]}" if public else re.split(r"[/\\]", found[0])[-1]
