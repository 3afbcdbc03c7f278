"""Arguments of ops that are numbers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from autogradviz.events import ArgumentsSeen, OpCalled

if TYPE_CHECKING:
    from autogradviz.event_log import Log


_FLOAT: Final = "f:"
_NOT_FINITE: Final = frozenset({"f:inf", "f:-inf"})
"""Numbers that JSON does not have."""


class OpNumbers:
    """The arguments of the ops of a recording that are numbers, by op and name."""

    def __init__(self, log: Log) -> None:
        self._texts = dict(log.fields(ArgumentsSeen, "arguments_id", "arguments"))
        self._ids: list[int | None] = log.column(OpCalled, "arguments_id")
        self._read: dict[int, dict[str, float]] = {}

    def of(self, index: int) -> dict[str, float]:
        """Return the numbers among the arguments of an op; ``dim=[1]`` is one as well."""
        arguments_id = self._ids[index]
        if arguments_id is None:
            return {}
        if arguments_id not in self._read:
            given = json.loads(self._texts.get(arguments_id, "{}"))
            self._read[arguments_id] = {
                key: number for key, each in given.items() if (number := _number(each)) is not None
            }
        return self._read[arguments_id]


def _number(value: object) -> float | None:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, str) and value in _NOT_FINITE:
        return float(value.removeprefix(_FLOAT))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]
