"""Run operators below a dispatch mode: decomposed, with autograd, or with numbers wrapped."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any, Final

import torch
from torch._C import (
    _dispatch_keys,
    _dispatch_tls_local_exclude_set,
    _dispatch_tls_local_include_set,
    _ForceDispatchKeyGuard,
    _len_torch_dispatch_stack,
)
from torch._C._functorch import peek_interpreter_stack
from torch.overrides import enable_reentrant_dispatch
from torch.utils._pytree import tree_leaves

from autogradviz.events import NO_ID
from autogradviz.recorder.torch_internals.private_api import (
    DispatchKey,
    DispatchKeySet,
    TorchDispatchMode,
    increment_version,
    pop_mode,
    push_mode,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


# In inference mode a composite operator reaches the mode undecomposed, and its parts then run below
# autograd: a view of a normal tensor would not know its base, and writing to it would not raise. It
# is decomposed above autograd, as without a mode. An operator that was registered without a
# gradient of its own runs with autograd on, so that the ops of its kernel are part of the graph; a
# mode runs it below autograd, and its gradient would be lost. A number that C++ had wrapped as a
# tensor arrives as a plain number, which few operators accept: it is wrapped again if the operator
# refuses it.
#
# Below a mode PyTorch also does less for the operators that a kernel calls itself, such as those of
# ``linalg.pinv`` or of a custom operator: autocast is off, and the conjugate bit of complex tensors
# is not resolved, so that the kernel computes with wrong numbers. Both are switched on again.


AUTOCASTS: Final = {
    name: DispatchKeySet(key)
    for name, key in DispatchKey.__members__.items()
    if name.startswith("Autocast")
}
"""The dispatch keys of autocast by name."""

_KERNELS = torch._C._dispatch_keyset_full_after(DispatchKey.ADInplaceOrView)
_FALLBACKS: Final = map(
    DispatchKeySet, (DispatchKey.Conjugate, DispatchKey.Negative, DispatchKey.ZeroTensor)
)
_IN_KERNELS: Final = functools.reduce(operator.or_, [*_FALLBACKS, *AUTOCASTS.values()])


def decompose(mode: TorchDispatchMode, func: Any, args: Any, kwargs: Any) -> Any:
    """Run the parts of a composite operator above autograd, under ``mode``."""
    with enable_reentrant_dispatch():
        push_mode(mode)
        try:
            return func.decompose(*args, **kwargs)
        finally:
            pop_mode()


def redispatch_with_autograd(
    mode: TorchDispatchMode, func: Any, types: Any, args: Any, kwargs: Any
) -> Any:
    """Run the kernel of an operator without a gradient of its own with autograd on, under ``mode``.

    If other modes or transforms are active, or a device replaces that of the tensors, the operator
    is called as PyTorch passed it on.
    """
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    others = types or _len_torch_dispatch_stack() or peek_interpreter_stack() is not None
    if not leaves or others or _dispatch_tls_local_include_set().has(DispatchKey.Meta):
        return func(*args, **kwargs)
    keys = functools.reduce(operator.or_, map(_dispatch_keys, leaves)) & _KERNELS
    with enable_reentrant_dispatch():
        push_mode(mode)
        try:
            return func.redispatch(keys, *args, **kwargs)
        finally:
            pop_mode()


def call_with_tls_keys(casts: DispatchKeySet, run: Any, args: Any, kwargs: Any) -> Any:
    """Run an operator with the thread-local dispatch keys that its kernel has without a mode.

    Args:
        casts: the kinds of autocast that a rule for the operator itself has applied already.
        run: the operator.
        args: its positional arguments.
        kwargs: its keyword arguments.
    """
    with torch._C._RestorePythonTLSSnapshot():  # type: ignore[attr-defined]
        outside = _dispatch_tls_local_exclude_set()
    included, excluded = _dispatch_tls_local_include_set(), _dispatch_tls_local_exclude_set()
    excluded = (excluded - _IN_KERNELS) | (outside & _IN_KERNELS) | casts
    with _ForceDispatchKeyGuard(included, excluded):
        return run(*args, **kwargs)


def wrap_scalars(
    error: BaseException, positions: Collection[int], args: tuple[Any, ...]
) -> tuple[Any, ...] | None:
    """Return the arguments with numbers wrapped as tensors, None if that does not help.

    Args:
        error: the exception of the call with the plain numbers.
        positions: positions of the tensor arguments in the schema.
        args: the positional arguments.
    """
    if "but instead found type" not in str(error):
        return None
    wrapped = tuple(
        torch.tensor(value)
        if position in positions and isinstance(value, (int, float, complex))
        else value
        for position, value in enumerate(args)
    )
    return None if all(a is b for a, b in zip(args, wrapped, strict=True)) else wrapped


def bump_missed_foreach(written: Iterable[tuple[int, torch.Tensor, int]]) -> None:
    """Bump the versions of tensors that a foreach op wrote, which a mode keeps PyTorch from doing.

    Args:
        written: id, tensor and version before the op.
    """
    for _, tensor, before in written:
        if before != NO_ID and tensor._version == before:
            increment_version((tensor,))
