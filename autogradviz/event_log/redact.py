"""A recording without its author's private text: source lines, values and folder names."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from autogradviz.event_log.log import Log
from autogradviz.events import EVENT_TYPES
from autogradviz.events.field_types import traits

if TYPE_CHECKING:
    from autogradviz.event_log.uncompressed_rows import Row
    from autogradviz.events.field_types import Privacy

_PATH: Final = re.compile(
    r"(?:(?<![\w.])~|\b[A-Za-z]:|(?<![\w./\\]))(?:[/\\](?=\S)[^/\\\n:'\"<>|]+)+"
)
"""An absolute path: of Unix, of a home folder, of Windows."""

_PUBLIC: Final = re.compile(r"[/\\]((?:torch|autogradviz)[/\\].*)$")
"""The public end of a path, which identifies the frames of checkpoint."""


def redact(log: Log) -> Log:
    """Return a log without source text, values of variables and folder names.

    Fields are treated as their types in ``events/`` say; of any other text, absolute paths are
    reduced to their last part: "train.py".
    """
    redacted = Log()
    redacted.problem = None if log.problem is None else without_folders(log.problem)
    for kind in EVENT_TYPES:
        if not traits(kind).private:
            privacy = traits(kind).privacy
            redacted.extend_rows(kind, [_redact_row(row, privacy) for row in log.rows(kind)])
    return redacted


def _redact_row(row: Row, privacy: tuple[Privacy | None, ...]) -> Row:
    return tuple(_redact_value(value, private) for value, private in zip(row, privacy, strict=True))


def _redact_value(value: Any, private: Privacy | None) -> Any:
    if isinstance(value, tuple):
        if private == "value":
            return ()
        return tuple(map(without_folders, value)) if value and isinstance(value[0], str) else value
    if not isinstance(value, str):
        return None if private == "value" else value
    if private == "source":
        return ""
    return "…" if private == "value" else without_folders(value)


@cache
def without_folders(text: str) -> str:
    """Return text with each absolute path reduced to its last part."""
    return _PATH.sub(_last_part, text)


def _last_part(found: re.Match[str]) -> str:
    public = _PUBLIC.search(found[0])
    return f"…/{public[1]}" if public else re.split(r"[/\\]", found[0])[-1]
