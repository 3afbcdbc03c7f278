"""Tensor classes of PyTorch that hold another tensor, and dispatch in Python.

Only these are read: an attribute of a user's class may run the user's code.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import torch
from torch._guards import TracingContext

from autogradviz.events import NO_ID
from autogradviz.recorder.torch_internals.compilers import forget_tensor_attribute, skip_frame
from autogradviz.recorder.torch_internals.distributed import coordinates_in_mesh
from autogradviz.recorder.torch_internals.private_api import (
    data_address,
    is_functorch_wrapped_tensor,
    is_legacy_batched_tensor,
    shape_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_DTENSOR: Final = ("torch.distributed.tensor", "DTensor")
_INNER: Final = {
    _DTENSOR: "_local_tensor",
    ("torch.distributed._functional_collectives", "AsyncCollectiveTensor"): "elem",
}
"""The attribute that holds the other tensor, by module and class."""


@lru_cache(maxsize=256)
def inner_attribute(kind: type) -> str:
    """Return the attribute in which a class holds its tensor, "" if it is none of PyTorch's."""
    return _INNER.get((kind.__module__, kind.__qualname__), "")


def inner_tensor(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor that another one holds: the local part of a ``DTensor``; None if none.

    If that holds another one in turn, the innermost is returned. A collective that still writes
    it is not waited for.
    """
    inner = None
    while attribute := inner_attribute(type(tensor)):
        found = getattr(tensor, attribute, None)
        if not isinstance(found, torch.Tensor):
            break
        inner = tensor = found
    return inner


def completed_inner_tensor(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the local part of a ``DTensor``; None if it is none, or a collective still writes it.

    Args:
        tensor: any tensor.
    """
    if not _is_dtensor(type(tensor)):
        return None
    local = getattr(tensor, "_local_tensor", None)
    return local if isinstance(local, torch.Tensor) else None


# --- layouts ------------------------------------------------------------------------------


class Layout(NamedTuple):
    """The placements of a ``DTensor`` on the ranks of a mesh."""

    placements: tuple[str, ...]
    mesh_names: tuple[str, ...]
    mesh_shape: tuple[int, ...]
    mesh_coordinates: tuple[int, ...]


NO_LAYOUT: Final = -1
_layouts: Final[list[Layout]] = []
_numbers: Final[dict[Layout, int]] = {}


def layout_number(tensor: Any) -> int:
    """Return the number of a ``DTensor``'s layout, NO_LAYOUT of any other tensor.

    There are few layouts in a program. The native engine keeps their numbers.
    """
    if not _is_dtensor(type(tensor)):
        return NO_LAYOUT
    spec = getattr(tensor, "_spec", None)
    if spec is None:
        return NO_LAYOUT
    mesh = spec.mesh
    layout = Layout(
        tuple([repr(placement) for placement in spec.placements]),
        tuple(mesh.mesh_dim_names or ()),
        tuple(mesh.shape),
        coordinates_in_mesh(mesh),
    )
    found = _numbers.get(layout)
    if found is None:
        _layouts.append(layout)
        found = _numbers.setdefault(layout, len(_layouts) - 1)
    return found


def layout_of(number: int) -> Layout:
    """Return the layout of a number."""
    return _layouts[number]


def _is_dtensor(kind: type) -> bool:
    return (kind.__module__, kind.__qualname__) == _DTENSOR


# --- tensors whose entries can be read, and the kinds of the others -------------------------------
#
# The recorder reads entries below autograd and below all dispatch, so that nothing observes it. For
# many tensors this is impossible, and for a wrapper it is fatal: ``detach()`` of a tensor that only
# dispatches to others gives a tensor without memory there, and reading that ends the process. So
# everything that reads entries asks here first.


FakeTensor: Final = torch._subclasses.fake_tensor.FakeTensor
LIMITS: Final = {
    "fingerprints": "{kind} have no fingerprints: their entries are not read",
    "norms": "the norms of {kind} are not read",
    "losses": "the values of losses that are {kind} are not read",
    "tensors": "the bytes and storages of {kind} are not recorded",
}
"""Sentences on the gaps of a recording, by the part of the recorder."""
_OWN_DISPATCH: Final[Any] = torch.Tensor.__torch_dispatch__
_Uninitialized: Final = (
    torch.nn.parameter.UninitializedParameter,
    torch.nn.parameter.UninitializedBuffer,
)
FREED: Final = "tensors whose memory was freed"
_SPARSE: Final = frozenset(
    {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}
)


def dispatches(kind: type) -> bool:
    """Return whether a class of tensors has its own ``__torch_dispatch__``."""
    dispatch: Any = getattr(kind, "__torch_dispatch__", None)
    return kind not in PLAIN_TENSORS and dispatch is not _OWN_DISPATCH


def is_fake(tensor: torch.Tensor, mode: object = None) -> bool:
    """Return whether a tensor is a fake one, of a mode if it is given."""
    return type(tensor) is FakeTensor and mode in {None, tensor.fake_mode}


def inner_tensors(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the tensors that have the memory of a wrapper, or the tensor itself.

    A wrapper names its tensors with ``__tensor_flatten__``, as ``torch.compile`` asks it; one that
    does not, or fails, counts as a tensor without inner ones.
    """
    if not dispatches(type(tensor)) or type(tensor) is FakeTensor:
        return [tensor]
    flatten: Any = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        return [tensor]
    try:
        found = [getattr(tensor, name) for name in flatten()[0]]
    except Exception:  # noqa: BLE001 - of a class of the user
        return [tensor]
    parts = [part for part in found if isinstance(part, torch.Tensor) and part is not tensor]
    return [inner for part in parts for inner in inner_tensors(part)]


def why_unreadable(tensor: torch.Tensor, *, sparse: bool = False) -> str:
    """Return the kind of a tensor whose entries cannot be read, "" if they can be.

    Call it with function overrides disabled.

    Args:
        tensor: any tensor.
        sparse: whether sparse tensors can be read.

    Returns:
        A kind in the plural, such as "tensors of the class DTensor".
    """
    found = why_without_values(tensor)
    if not found and dispatches(type(tensor)):
        found = class_text(type(tensor))
    found = found or _transformed(tensor)
    if found:
        pass
    elif tensor.is_nested:
        found = "nested tensors"
    elif tensor.layout in _SPARSE:
        found = "" if sparse else "sparse tensors"
    elif tensor.layout is not torch.strided:
        found = f"tensors with the layout {tensor.layout}"
    elif tensor.is_quantized:
        found = "quantized tensors"
    elif tensor._is_zerotensor():
        found = "zero tensors"
    elif not _has_memory(tensor):
        found = FREED
    return found


def _transformed(tensor: torch.Tensor) -> str:
    if is_functorch_wrapped_tensor(tensor) or is_legacy_batched_tensor(tensor):
        return "tensors inside of transforms of torch.func"
    return "functional tensors" if torch._is_functional_tensor(tensor) else ""


def why_without_values(tensor: torch.Tensor) -> str:
    """Return the kind of a tensor that has no values at all, "" if it has some.

    Those have none that only describe a computation: on the meta device, and fake tensors.
    """
    kind = type(tensor)
    if kind in PLAIN_TENSORS:
        return "tensors on the meta device" if tensor.is_meta else ""
    if issubclass(kind, _Uninitialized):
        return "parameters that are not initialized"
    if kind is FakeTensor:
        return "fake tensors"
    return "" if dispatches(kind) or not tensor.is_meta else "tensors on the meta device"


def class_text(kind: type) -> str:
    """Return "tensors of the class DTensor"."""
    return f"tensors of the class {kind.__name__}"


def _has_memory(tensor: torch.Tensor) -> bool:
    """Return whether the storage of a strided tensor has memory for all of its entries.

    Sharded modules free the memory of a parameter, and allocate it again before they use it.
    """
    entries = tensor.numel()
    if entries == 0:
        return True
    if not tensor.is_contiguous():
        steps = zip(shape_of(tensor), tensor.stride(), strict=True)
        entries = 1 + sum((length - 1) * step for length, step in steps)
    end = tensor.storage_offset() + entries
    nbytes = tensor.untyped_storage().nbytes()
    return end * tensor.element_size() <= nbytes and data_address(tensor) != 0


def unread_kind(tensor: torch.Tensor) -> str:
    """Return the kind of a tensor of which no fingerprint and no norm is computed.

    Call it with function overrides disabled.

    Returns:
        A kind in the plural; "" if the tensor is of none, has no entries or no memory now.
    """
    kind = type(tensor)
    found = why_unreadable(tensor)
    if found:
        return "" if found == FREED else found
    if kind not in PLAIN_TENSORS:
        return class_text(kind)
    if tensor.numel() and (tensor.is_conj() or tensor.is_neg()):
        return "conjugate and negative views"
    return ""


# --- tensors of PyTorch's own classes, and version counters ---------------------------------------


PLAIN_TENSORS: Final = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
"""PyTorch's own classes: reading an attribute of such a tensor runs no Python code."""


def version_of(tensor: torch.Tensor) -> int:
    """Return a tensor's version counter, NO_ID if it has none (inference mode)."""
    try:
        return tensor._version
    except RuntimeError:
        return NO_ID


# --- detect backends that run operators later (XLA, PyTorch's lazy tensors) -----------------------
#
# Their tensors cannot be used under any dispatch mode: views and in-place writes raise, and the
# tensors that reach the mode have no storage, so that reading it ends the process.


NO_OPS_WITH_LAZY: Final = "operators are not recorded: a lazy backend fails under any dispatch mode"


def has_lazy_backend() -> bool:
    """Return whether this process has a lazy backend."""
    try:
        torch._C._lazy._get_default_device_type()
    except RuntimeError:
        return False
    return True


# --- let tensor subclasses be created by calling the class, as in ``MyTensor([1.0, 2.0])`` --------
#
# PyTorch first creates a plain tensor, then an object of the subclass for the same C++ tensor. A
# tensor that a dispatch mode has returned has a Python object already, so PyTorch refuses. The mode
# is suspended during the call.


class _Mode(Protocol):
    def suspend(self) -> bool: ...

    def resume(self) -> None: ...


@contextmanager
def suspended_in_subclass_new(mode: _Mode | None) -> Iterator[None]:
    """Suspend a mode whenever a subclass is called, while the context is open."""
    if mode is None:
        yield
        return
    # The original is inherited from the C class: ours hides it and is deleted again.
    ours = _New(torch.Tensor.__new__, mode)
    setattr(torch.Tensor, "__new__", ours)  # noqa: B010
    try:
        yield
    finally:
        del torch.Tensor.__new__
        forget_tensor_attribute("__new__", ours)


class _New:
    """``__new__`` of the subclasses; for ``torch.Tensor`` itself and for compilers the original.

    Dynamo stores the ``__new__`` that it reads when it is imported, for as long as it lives.
    """

    def __init__(self, original: Callable[..., Any], mode: _Mode) -> None:
        self._original = original
        self._mode = mode

    def __get__(self, instance: Any, owner: Any = None) -> Callable[..., Any]:
        if owner is torch.Tensor or TracingContext.try_get() is not None:
            return self._original
        return self._call

    @skip_frame
    def _call(self, cls: Any, *args: Any, **kwargs: Any) -> Any:
        suspended = self._mode.suspend()
        try:
            return self._original(cls, *args, **kwargs)
        finally:
            if suspended:
                self._mode.resume()
