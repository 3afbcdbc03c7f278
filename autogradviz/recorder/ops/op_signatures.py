"""Signatures of operators: writes, results, and operators that give their own derivative."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch

from autogradviz.recorder.ops.collectives import Collective, read_collective
from autogradviz.recorder.ops.device_copies_and_streams import Copy, read_copy
from autogradviz.recorder.ops.hashes_norms_and_draws import Draw, read_draw
from autogradviz.recorder.torch_internals.private_api import (
    DispatchKeySet,
    OpOverload,
    has_kernel_for_dispatch_key,
)
from autogradviz.recorder.torch_internals.run_below_mode import AUTOCASTS

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
    special: Literal["", "composite", "bare"]  # see torch_internals/run_below_mode.py
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
