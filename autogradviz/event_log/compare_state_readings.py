"""A reading of one piece of state, and how two readings differ."""

from __future__ import annotations

from contextlib import suppress
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from autogradviz.events import ChangeKind, ValueKind

ABSENT: Final = "absent"
DEAD: Final = "dead"
ALIVE: Final = "alive"

_COUNTED: Final = frozenset({"container", "cache", "hooks"})


class StateValue(NamedTuple):
    """A reading of one piece of state."""

    kind: ValueKind
    form: str  # the text for display, without identity, version and requires_grad
    number: float | None = None  # the value of a number, or a number of items
    object_id: int | None = None
    version: int | None = None
    requires_grad: bool | None = None
    names: tuple[str, ...] = ()  # of a mode

    @property
    def text(self) -> str:
        """The text for display: "float32 2×4 #12 v3, requires grad"."""
        identity = "" if self.object_id is None else f" #{self.object_id}"
        version = "" if self.version is None else f" v{self.version}"
        return f"{self.form}{identity}{version}{', requires grad' if self.requires_grad else ''}"


Reading: TypeAlias = StateValue | str
"""A reading; of a plain value, which most are, only the text."""


def to_value(reading: Reading) -> StateValue:
    """Return a reading with its fields; the number of a plain value is read from its text."""
    if isinstance(reading, StateValue):
        return reading
    number = None
    if reading[:1].isdecimal() or reading[:1] == "-":
        with suppress(ValueError):  # "2j", a complex number
            number = float(reading)
    return StateValue("plain", reading, number if number is None or isfinite(number) else None)


def find_change_kind(before: StateValue | None, after: StateValue | None) -> ChangeKind:
    """Return the kind of difference between two readings; None stands for absent state."""
    if before is None or after is None:
        return "added" if before is None else "removed"
    if before.kind != after.kind:
        return "type"
    return _same_form(before, after) if before.form == after.form else _other_form(before, after)


def _other_form(before: StateValue, after: StateValue) -> ChangeKind:
    """Return the kind of difference between two values of one kind that do not look the same."""
    if before.kind == "object" and before.object_id == after.object_id:
        return "class"
    if before.kind == "weak_reference" and after.form == DEAD:
        return "died"
    if before.kind in _COUNTED and before.number != after.number:
        return "size"
    return "content" if before.kind in {"container", "array"} else "value"


def _same_form(before: StateValue, after: StateValue) -> ChangeKind:
    """Return the kind of difference between two values of one kind that look the same."""
    if before.requires_grad != after.requires_grad:
        same = (before.object_id, before.version) == (after.object_id, after.version)
        return "requires_grad" if same else "value"
    if before.object_id != after.object_id:
        return "identity"
    return "version" if before.version != after.version else "value"


def change_fields(before: Reading | None, after: Reading | None) -> tuple[Any, ...]:
    """Return the fields ``value_kind`` to ``before_names`` of a ``StateChange``."""
    first, second = (None if each is None else to_value(each) for each in (before, after))
    kind = find_change_kind(first, second)
    first, second = first or _NOTHING, second or _NOTHING
    return (
        second.kind if before is None else first.kind,
        kind,
        first.text,
        second.text,
        first.number,
        second.number,
        first.object_id,
        second.object_id,
        first.version,
        second.version,
        second.requires_grad,
        first.names,
    )


_NOTHING: Final = StateValue("plain", ABSENT)
