"""Modes of dispatch and tracing: what runs without them, and their state."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

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
from autogradviz.recorder.torch_internals.compilers import skip_dynamo_recursive
from autogradviz.recorder.torch_internals.nodes import slots_of
from autogradviz.recorder.torch_internals.patches import forget_compilers, patched_for_compilers_too
from autogradviz.recorder.torch_internals.private_api import (
    GUARDS,
    DispatchKey,
    DispatchKeySet,
    DispatchModeKey,
    TorchDispatchMode,
    get_dispatch_mode,
    increment_version,
    is_key_included,
    pop_mode,
    push_mode,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence


# --- the nodes during which the dispatch mode is suspended ----------------------------------------
#
# NOTE [ Formulas that ask whether a mode is active ] While any dispatch mode is active PyTorch
# treats every tensor as a subclass, and a few backward formulas then compute the same gradient in
# another way: with different rounding, with NaN where an infinite gradient meets a zero, or without
# the check that would have raised. ``OpMode`` is suspended while those nodes run, and while a
# sparse gradient reaches a leaf; the operators inside them are not recorded. The formulas of the
# binary cross entropies write in place without a mode, which rounds to the dtype of the tensor
# written: that shows only if a node saved tensors of different dtypes. The check in the formula of
# ``eigh`` is there for complex matrices, whose eigenvalues are real. A write to a view leaves a
# ``CopySlices`` node, which hides its formula: the operator that wrote identifies it.


OpNames: TypeAlias = Callable[[int], list[str]]
"""Returns the names of the ops that created the node of a sequence number, one for each thread."""

Condition: TypeAlias = Callable[[Any, OpNames], bool]
"""Returns whether the formula of a node would differ under a mode."""


def _always(_node: Any, _op_names: OpNames) -> bool:
    return True


def _mixes_dtypes(node: Any, _op_names: OpNames) -> bool:
    """Return whether a node saved tensors of several dtypes, or hooks hide them."""
    dtypes = set()
    for name, _ in slots_of(type(node)):
        try:
            slot = getattr(node, name)
        except RuntimeError:  # the graph was freed
            continue
        if slot.unpack_hook is not None:
            return True
        if isinstance(slot.data, torch.Tensor):
            dtypes.add(slot.data.dtype)
    return len(dtypes) > 1


def _fills_with_gradient(node: Any, _op_names: OpNames) -> bool:
    """Return whether the fill value of a node gets a gradient."""
    _, (value, _) = node.next_functions
    return value is not None


def _writes_sensitively(node: Any, op_names: OpNames) -> bool:
    """Return whether a write to a view has such a formula, or its operator was not recorded.

    If an operator is about to overwrite a tensor that its formula needs, PyTorch clones it first:
    ``cumprod_``, and others that take nothing else.
    """
    names = op_names(node._sequence_nr() - 1)
    others = [other is not None for other, _ in node.next_functions[1:]]
    filled = "aten.masked_fill_.Tensor" in names and any(others)
    return not names or filled or ("aten.clone.default" in names and not others)


MODE_SENSITIVE: Final[dict[str, Condition]] = {
    "BinaryCrossEntropyBackward0": _mixes_dtypes,
    "BinaryCrossEntropyBackwardBackward0": _mixes_dtypes,
    "BinaryCrossEntropyWithLogitsBackward0": _mixes_dtypes,
    "CopySlices": _writes_sensitively,
    "CumprodBackward0": _always,
    "LinalgDetBackward0": _always,
    "LinalgEigBackward0": _always,
    "LinalgEighBackward0": _mixes_dtypes,
    "LinalgLstsqBackward0": _always,
    "LinalgMatrixExpBackward0": _always,
    "MaskedFillBackward1": _fills_with_gradient,
    "MaxBackward1": _always,
    "MedianBackward0": _always,
    "MinBackward1": _always,
    "NanmedianBackward0": _always,
    "ProdBackward0": _always,
    "ProdBackward1": _always,
}


def is_sparse(gradients: Sequence[Any]) -> bool:
    """Return whether a leaf is about to receive a sparse gradient.

    The indices and values that a mode has seen have Python objects; PyTorch would then give the
    leaf a copy of the gradient and not the gradient itself.
    """
    first = gradients[0] if len(gradients) == 1 else None
    return isinstance(first, torch.Tensor) and first.layout is not torch.strided


# --- run operators below a dispatch mode as they run without one ----------------------------------
#
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


# --- tracing state --------------------------------------------------------------------------------
#
# The state of a thread that traces for a compiler: what it runs is no part of the program's run.
#
# Compiled autograd also sets a context, without a frame, while it runs what it has compiled.
#
# NOTE [ While a compiler runs ] A compiler runs the program to trace it, also in the middle of a
# recording. What it runs is no part of the program's run, and Dynamo recognizes PyTorch's functions
# by identity. So two things happen while a compiler runs (``tracing_state.py`` and
# ``patch_functions.py`` in ``recorder/torch_internals/``):
#
# - The recording of its thread is suspended: operators, modules, regions, hooks, backward. Dynamo,
#   AOTAutograd and Inductor set one of two contexts of ``torch._guards`` for as long as they
# compile,
#   on the thread that does it, also when a backward is compiled at its first run. The thread-local
#   object is replaced by one that reports changes, because C++ needs a flag and PyTorch's callbacks
#   are called once for all threads. Tracing without these contexts (``make_fx``, ``aot_function``)
#   runs under a dispatch mode for tracing, which the engine's threads inherit. A ``FakeTensorMode``
#   alone is no tracing: programs use it to estimate memory. ``Session.guarded`` asks; what must
#   happen in any case, like releases, uses ``Session.always_guarded``.
# - All functions of PyTorch that the recorder has replaced are restored, for all threads. Otherwise
#   Dynamo would trace ours, guard them, and keep what it read in tables that outlive the recording.
# A
#   table that Dynamo filled when it was imported during a recording is corrected.
#
# One function stays replaced: the one that returns the innermost pair of saved-tensor hooks.
# AOTAutograd inlines a pair of two ``GraphModule``s, and Dynamo guards its identity, so it must
# return the pair that was entered and not the wrappers that PyTorch calls. In eager code such a
# pair is recorded like any other.
#
# When compiled code calls Python functions, Dynamo evaluates their frames. All functions of the
# recorder are marked to be skipped, with what they call; wrappers are marked alone, because they
# call the user's code (``keep_dynamo_out.py``).
#
# AOTAutograd without Dynamo (``aot_function``) sets no context before its dispatch modes are
# active: the operators that create its fake tensors are recorded.


_CONTEXTS: Final = GUARDS._TLS
_PROXY: Final = DispatchModeKey.PROXY
_FUNCTIONAL: Final = DispatchModeKey.FUNCTIONAL
_PRE_DISPATCH: Final = DispatchKey.PreDispatch


def is_compiling() -> bool:
    """Return whether a compiler runs on this thread."""
    if getattr(_CONTEXTS, "tracing_context", None) is not None:
        return True
    context = getattr(_CONTEXTS, "compile_context", None)
    if context is None:
        return False
    compile_id = context.compile_id
    return compile_id is None or compile_id.frame_id is not None


def is_under_tracing_mode() -> bool:
    """Return whether a dispatch mode for tracing is active on this thread."""
    return (
        get_dispatch_mode(_PROXY) is not None
        or get_dispatch_mode(_FUNCTIONAL) is not None
        or is_key_included(_PRE_DISPATCH)
    )


class _ObservedContexts:
    """The contexts of all threads; a function is called after each change."""

    __slots__ = ("_changed",)

    def __init__(self, changed: Callable[[], None]) -> None:
        object.__setattr__(self, "_changed", changed)

    def __getattr__(self, name: str) -> Any:
        return getattr(_CONTEXTS, name)

    @skip_dynamo_recursive
    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_CONTEXTS, name, value)
        self._changed()

    @skip_dynamo_recursive
    def __delattr__(self, name: str) -> None:
        delattr(_CONTEXTS, name)
        self._changed()


@contextmanager
def compiling_listener(changed: Callable[[], None]) -> Iterator[None]:
    """Call a function whenever a compiler may have begun or ended on the calling thread.

    PyTorch has no interface for this: its callbacks are called once for all threads, and only for
    the outermost of nested compilations.
    """
    with patched_for_compilers_too(GUARDS, _TLS=_ObservedContexts(changed)):
        try:
            yield
        finally:
            forget_compilers()
