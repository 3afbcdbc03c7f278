"""The arguments of operators as text; ``ArgumentsSeen`` has the format."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from autogradviz.events import ArgumentsSeen

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from types import FrameType

    from autogradviz.recorder.ops.op_signatures import Signature
    from autogradviz.recorder.session import Session


MAX_ARGUMENTS: Final = 10_000
"""Different arguments that are remembered; a number may be another one in each step."""

_Tensor: Final = torch.Tensor
_Parameter: Final = torch.nn.Parameter
_PLAIN: Final = frozenset({_Tensor, _Parameter})

_MEMBERS: Final = (torch.dtype, torch.layout, torch.memory_format)


class OpArgumentTable:
    """Assigns an id to all arguments of a call that are equal, and records them once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ids: dict[Any, int] = {}
        self._count = 0

    def intern(
        self, signature: Signature, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> int | None:
        """Return the id of a call's arguments, None if they are not recorded."""
        key = (signature.name, _key(args), _key(kwargs.items()) if kwargs else None)
        try:
            return self._ids[key]
        except KeyError:
            pass
        except TypeError:  # a value without a hash
            return None
        schema = getattr(func, "_schema", None)
        if schema is None or len(self._ids) >= MAX_ARGUMENTS:
            return None
        found = self._ids[key] = self._count
        self._count += 1
        self._session.emit(ArgumentsSeen, found, text_of_arguments(schema, args, kwargs))
        return found

    def prune(self, used: AbstractSet[int]) -> set[int]:
        """Forget the arguments that are not in use, and return the ids of all that were known.

        If the same ones come again, they get a new id.
        """
        known = dict(self._ids)
        for key, number in known.items():
            if number not in used:
                self._ids.pop(key, None)
        return set(known.values())


def _key(values: Any) -> tuple[Any, ...]:
    """Return a value that is equal for equal arguments, of equal types."""
    found: list[Any] = []
    for value in values:
        kind = value.__class__
        if kind is _Tensor or kind is _Parameter:
            found.append(_Tensor)
        elif kind is int or kind is str or value is None:
            found.append(value)
        elif kind is list or kind is tuple or kind.__name__ == "immutable_list":
            plain = _PLAIN.issuperset(map(type, value)) and len(value) > 0
            found.append((_Tensor, len(value)) if plain else _key(value))
        elif kind is bool:
            found.append((kind, value))
        elif kind is float or kind is complex:
            # 0.0 equals -0.0, and NaN differs from itself.
            found.append((kind, value if value == value and value else repr(value)))  # noqa: PLR0124
        elif isinstance(value, _Tensor):
            found.append(_Tensor)
        else:
            found.append(value)
    return tuple(found)


def text_of_arguments(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the arguments of a call as JSON, without those that have their default value."""
    found = {}
    for position, argument in enumerate(schema.arguments):
        if position < len(args):
            value = args[position]
        elif argument.name in kwargs:
            value = kwargs[argument.name]
        else:
            continue
        if not _is_default(argument, value):
            found["*" * argument.kwarg_only + argument.name] = _value(value)
    return json.dumps(found)


def _is_default(argument: Any, value: Any) -> bool:
    if isinstance(value, torch.Tensor) or not argument.has_default_value():
        return False
    default = argument.default_value
    return type(default) is type(value) and bool(default == value)


def _value(value: Any) -> Any:  # noqa: PLR0911
    if isinstance(value, torch.Tensor):
        return "$"
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else f"f:{value}"
    if isinstance(value, str):
        return f"s:{value}"
    if isinstance(value, _MEMBERS):
        return str(value)
    if isinstance(value, torch.device):
        return f"d:{value}"
    if isinstance(value, complex):
        return f"c:{value.real!r},{value.imag!r}"
    if isinstance(value, torch.Generator):
        return "g:"
    if isinstance(value, (list, tuple)):
        return [_value(item) for item in value]
    return f"?:{type(value).__name__}"


# --- the code that calls an operator: the program, or a compiled region ---------------------------


EAGER: Final = 0
COMPILED: Final = 1  # recorded
LEFT_OUT: Final = 2
"""A compiled region whose ops are recorded with the region, not in each run."""

ALL_LEFT_OUT: Final = 3
"""The same if no op of its graph is recorded in a run."""


class OpOrigins(Protocol):
    """The callers of operators; ``compile/leave_out_generated_code_ops.py`` implements it."""

    def ask(self) -> int:
        """Return one of the constants above for the operator that the calling frame runs."""

    def origin_of(self, frame: FrameType | None) -> int:
        """Return one of the constants above for the operators that a frame calls."""
