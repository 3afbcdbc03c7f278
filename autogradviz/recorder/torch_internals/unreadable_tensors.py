"""Tensors whose entries cannot be read, the reasons, and the tensors inside of them."""

from __future__ import annotations

from typing import Any, Final

import torch

from autogradviz.recorder.torch_internals.private_api import (
    data_address,
    is_functorch_wrapped_tensor,
    is_legacy_batched_tensor,
    shape_of,
)
from autogradviz.recorder.torch_internals.wrapper_tensors import PLAIN_TENSORS

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
