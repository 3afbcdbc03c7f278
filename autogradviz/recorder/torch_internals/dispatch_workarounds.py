"""Calls that reach a dispatch mode in another shape than the one they have without it.

In inference mode a composite operator reaches the mode whole, and its parts then run below
autograd: a view of a normal tensor would not know its base, and writing to it would not raise.
It is taken apart above autograd, as it is where nobody looks. An operator that somebody registered
without any gradient of its own runs with autograd on where nobody looks, so what its kernel does is
part of the graph; a mode runs it below autograd, and its gradient would be lost. And a number that
C++ had wrapped as a tensor arrives as a plain number, which few operators take back: it is wrapped
again where one does not.

And below a mode PyTorch does less for the operators that a kernel calls by itself, as that of
``linalg.pinv`` or a custom operator's does: autocast is off, and nobody looks for the bit that says
that a complex number is still to be conjugated, so that the kernel computes with the wrong numbers.
Both are switched on again where they would be.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any, Final

import torch
from torch._C import (
    DispatchKey,
    DispatchKeySet,
    _dispatch_keys,
    _dispatch_tls_local_exclude_set,
    _dispatch_tls_local_include_set,
    _ForceDispatchKeyGuard,
    _len_torch_dispatch_stack,
)
from torch._C._functorch import peek_interpreter_stack as _peek_interpreter_stack
from torch.overrides import enable_reentrant_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode
from torch.utils._pytree import tree_leaves

from autogradviz.recorder.ops.schemas import AUTOCASTS

if TYPE_CHECKING:
    from autogradviz.recorder.ops.schemas import Signature

_KERNELS = torch._C._dispatch_keyset_full_after(DispatchKey.ADInplaceOrView)  # noqa: SLF001
_LAZY: Final = map(
    DispatchKeySet, (DispatchKey.Conjugate, DispatchKey.Negative, DispatchKey.ZeroTensor)
)
_WITHIN: Final = functools.reduce(operator.or_, [*_LAZY, *AUTOCASTS.values()])


def decompose(mode: TorchDispatchMode, func: Any, args: Any, kwargs: Any) -> Any:
    """Run the parts of a composite operator above autograd, under ``mode``."""
    with enable_reentrant_dispatch():
        _push_mode(mode)
        try:
            return func.decompose(*args, **kwargs)
        finally:
            _pop_mode()


def redispatch_with_autograd(
    mode: TorchDispatchMode, func: Any, types: Any, args: Any, kwargs: Any
) -> Any:
    """Run the kernel of an operator without a gradient of its own with autograd on, under ``mode``.

    Where others look too, transforms are active or a device is put in place of the tensors' own,
    it reaches them as PyTorch hands it on.
    """
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    others = types or _len_torch_dispatch_stack() or _peek_interpreter_stack() is not None
    if not leaves or others or _dispatch_tls_local_include_set().has(DispatchKey.Meta):
        return func(*args, **kwargs)
    keys = functools.reduce(operator.or_, map(_dispatch_keys, leaves)) & _KERNELS
    with enable_reentrant_dispatch():
        _push_mode(mode)
        try:
            return func.redispatch(keys, *args, **kwargs)
        finally:
            _pop_mode()


def call_with_tls_keys(casts: DispatchKeySet, run: Any, args: Any, kwargs: Any) -> Any:
    """Run an operator whose kernel calls others, and do for these what is done unwatched.

    Args:
        casts: the kinds of autocast that a rule for the operator itself has done and switched off.
        run: the operator.
        args: what it takes.
        kwargs: what it takes by name.
    """
    with torch._C._RestorePythonTLSSnapshot():  # type: ignore[attr-defined] # noqa: SLF001
        outside = _dispatch_tls_local_exclude_set()
    included, excluded = _dispatch_tls_local_include_set(), _dispatch_tls_local_exclude_set()
    excluded = (excluded - _WITHIN) | (outside & _WITHIN) | casts
    with _ForceDispatchKeyGuard(included, excluded):
        return run(*args, **kwargs)


def wrap_scalars(
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
