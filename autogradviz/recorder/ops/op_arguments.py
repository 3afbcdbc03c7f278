"""The arguments of operators as text; ``ArgumentsSeen`` has the format."""

from __future__ import annotations

import functools
import json
import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import torch

from autogradviz.events import ArgumentsSeen
from autogradviz.recorder.ops.collectives import Collective, read_collective
from autogradviz.recorder.ops.device_copies_and_streams import Copy, read_copy
from autogradviz.recorder.ops.hashes_norms_and_draws import Draw, read_draw
from autogradviz.recorder.torch_internals.modes import AUTOCASTS
from autogradviz.recorder.torch_internals.private_api import (
    DispatchKeySet,
    OpOverload,
    has_kernel_for_dispatch_key,
)

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from types import FrameType

    from autogradviz.recorder.session import Session


# --- operator schemas: tensor arguments, in-place writes, and existing kernels --------------------


_COMPOSITE: Final = "CompositeImplicitAutograd"
_VIEW: Final = "ADInplaceOrView"
_BUMPING_KEYS: Final = (_VIEW, _COMPOSITE)
_OWN_GRADIENT_KEYS: Final = (
    _COMPOSITE, "Autograd", "AutogradCPU", "AutogradCUDA", "AutogradMPS", "AutogradXPU",
    "AutogradPrivateUse1", "AutogradOther", "AutogradNestedTensor",
)  # fmt: skip
_SIMPLE: Final = {torch.Tag.core, torch.Tag.pointwise, torch.Tag.reduction}
_OF_PYTORCH: Final = ("aten.", "prims.")
_RULED_AS: Final = {
    "aten::_euclidean_dist": "aten::cdist",
    "aten::_linalg_eigh": "aten::linalg_eigh",
    "aten::_linalg_solve_ex": "aten::linalg_solve",
    "aten::_linalg_svd": "aten::linalg_svd",
    "aten::_trilinear": "aten::bilinear",
}
"""Operators that only others call, and the operator whose autocast rule applies to them."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The parts of an operator's schema that recording needs."""

    run: Any  # the C++ function that the operator's ``__call__``, which is Python, calls
    name: str
    places: tuple[tuple[int, str, bool], ...]  # position, keyword, written
    alone: bool  # the first argument is the only one with tensors, and is not written
    bumps_later: bool  # a kernel above the mode bumps the versions of what is written
    foreach: bool
    clone: bool
    special: Literal["", "composite", "bare"]  # see torch_internals/run_op_as_without_mode.py
    casts: DispatchKeySet | None  # its own autocast rules, if its kernel may call operators
    draw: Draw | None = None  # it may draw random numbers
    collective: Collective | None = None  # it communicates with other processes
    copy: Copy | None = None  # it may copy between devices
    # A run shows no more than its graph; see compile/leave_out_generated_code_ops.py.
    repeats: bool = False


SIGNATURES: Final[dict[Any, Signature]] = {}
"""By the function that an operator runs: hashing the operator itself is Python code."""


def signature_of(func: Any) -> Signature:
    """Return the signature of an operator or higher-order operator; read once a process."""
    key = getattr(func, "_op", func)
    signature = SIGNATURES.get(key)
    if signature is None:
        signature = SIGNATURES[key] = _read_schema(func)
    return signature


def _read_schema(func: Any) -> Signature:
    schema = getattr(func, "_schema", None)
    if schema is None:  # a higher-order operator
        name = getattr(func, "name", None)
        return Signature(
            func,
            str(name() if callable(name) else func),
            (),
            alone=False,
            bumps_later=True,
            foreach=False,
            clone=False,
            special="",
            casts=None,
        )
    places = []
    aliases = False
    for position, argument in enumerate(schema.arguments):
        if "Tensor" in str(argument.type):
            aliases = aliases or argument.alias_info is not None
            written = argument.alias_info is not None and argument.alias_info.is_write
            places.append((position, argument.name, written))
    special: Literal["", "composite", "bare"] = ""
    qualified = schema.name + (f".{schema.overload_name}" if schema.overload_name else "")
    if aliases and _is_composite(qualified):
        special = "composite"
    elif not _has_any_kernel(qualified, _OWN_GRADIENT_KEYS, unknown=True):
        special = "bare"
    draw, collective = read_draw(func, schema), read_collective(schema)
    writes = schema.overload_name != "out" and any(written for *_, written in places)
    return Signature(
        func._op if type(func) is OpOverload else func,  # noqa: SLF001
        str(func),
        tuple(places),
        alone=[(position, written) for position, _, written in places] == [(0, False)],
        bumps_later=_has_any_kernel(qualified, _BUMPING_KEYS, unknown=True),
        foreach=qualified.startswith("aten::_foreach_"),
        clone=qualified == "aten::clone",
        special=special,
        casts=_casts(qualified) if _calls_others(func, schema) else None,
        draw=draw,
        collective=collective,
        copy=read_copy(str(func), schema),
        # Generated code has variants with ``out`` only for memory of its own.
        repeats=str(func).startswith(_OF_PYTORCH)
        and not (writes or draw is not None or collective is not None),
    )


def gives_own_derivative(func: Any) -> bool:
    """Return whether PyTorch does not know the derivative of an operator: its library gives it."""
    return getattr(func, "_schema", None) is not None and not str(func).startswith(_OF_PYTORCH)


def _is_composite(qualified: str) -> bool:
    """Return whether an operator is composite and has no view kernel, as ``chunk`` has."""
    return _has_any_kernel(qualified, (_COMPOSITE,)) and not _has_any_kernel(qualified, (_VIEW,))


def _calls_others(func: Any, schema: Any) -> bool:
    """Return whether an operator's kernel may call others; those of views and basic ops do not."""
    if schema.name.startswith("aten::") and not _SIMPLE.isdisjoint(func.tags):
        # With a number, the kernel calls that with tensors. Without this, one that gets a tensor
        # of zeros without memory, as double backward makes them, crashes below a mode.
        overload: str = schema.overload_name
        return overload.startswith("Scalar")
    aliases = [argument.alias_info for argument in schema.arguments]
    return not any(alias is not None and not alias.is_write for alias in aliases)


def _casts(qualified: str) -> DispatchKeySet:
    ruled = _RULED_AS.get(qualified, qualified)
    rules = [keys for name, keys in AUTOCASTS.items() if _has_any_kernel(ruled, (name,))]
    return functools.reduce(operator.or_, rules, DispatchKeySet.from_raw_repr(0))


def _has_any_kernel(qualified: str, keys: tuple[str, ...], *, unknown: bool = False) -> bool:
    try:
        return any(has_kernel_for_dispatch_key(qualified, key) for key in keys)
    except RuntimeError:  # implemented in Python, without a registered schema
        return unknown


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
