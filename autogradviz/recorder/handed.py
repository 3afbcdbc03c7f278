"""Calls that reach a dispatch mode in another shape than the one they have without it.

In inference mode a composite operator reaches the mode whole, and its parts then run below
autograd: a view of a normal tensor would not know its base, and writing to it would not raise.
It is taken apart above autograd, as it is where nobody looks. And a number that C++ had wrapped
as a tensor arrives as a plain number, which few operators take back: it is wrapped again where
one does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import enable_reentrant_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

if TYPE_CHECKING:
    from autogradviz.recorder.signatures import Signature


def decompose(mode: TorchDispatchMode, func: Any, args: Any, kwargs: Any) -> Any:
    """Run the parts of a composite operator above autograd, under ``mode``."""
    with enable_reentrant_dispatch():
        _push_mode(mode)
        try:
            return func.decompose(*args, **kwargs)
        finally:
            _pop_mode()


def wrap_numbers(
    error: BaseException, signature: Signature, args: tuple[Any, ...]
) -> tuple[Any, ...] | None:
    """Return the arguments with numbers made tensors, if ``error`` turned them down."""
    if "but instead found type" not in str(error):
        return None
    places = {position for position, _, _ in signature.places}
    wrapped = tuple(
        torch.tensor(value)
        if place in places and isinstance(value, (int, float, complex))
        else value
        for place, value in enumerate(args)
    )
    return None if all(a is b for a, b in zip(args, wrapped, strict=True)) else wrapped
