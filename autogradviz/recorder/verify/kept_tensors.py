"""Copies of the tensors that operators took, shared while their content stays the same."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.recorder.ops.fingerprints import below_autograd
from autogradviz.recorder.torch_internals.plain_tensors_and_versions import PLAIN_TENSORS
from autogradviz.recorder.torch_internals.private_api import (
    DisableTorchFunction,
    is_functorch_wrapped_tensor,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_SMALL: Final = 1 << 12
"""Bytes up to which a second copy costs less than a comparison with the first one."""
_MOST_KNOWN: Final = 20_000


class CannotReplayError(Exception):
    """An operator, or a node, cannot be run again; the message says why."""


class Kept:
    """A tensor argument as it was when its operator ran.

    Attributes:
        copy: of the tensor, or of its base if the operator wrote into a view.
        requires_grad: whether the tensor, or that base, required a gradient.
        written: whether the operator writes it.
        place: shape, strides and offset in the base; None for a tensor that is no written view.
    """

    __slots__ = ("copy", "place", "requires_grad", "written")

    def __init__(
        self, copy: torch.Tensor, *, requires_grad: bool, written: bool, place: Any = None
    ) -> None:  # fmt: skip
        self.copy = copy
        self.requires_grad = requires_grad
        self.written = written
        self.place = place


class KeptTensors:
    """Keeps copies of tensors; equal contents at the same memory share a copy while it lives."""

    def __init__(self) -> None:
        self._known: dict[Any, weakref.ref[torch.Tensor]] = {}

    def keep(self, tensor: torch.Tensor, *, written: bool, grad: bool) -> Kept:
        """Return a copy of an argument.

        Args:
            tensor: the argument.
            written: the operator writes it.
            grad: gradients are recorded: a write into a view changes the graph of its base.

        Raises:
            CannotReplayError: it cannot be copied.
        """
        check_plain(tensor)
        with DisableTorchFunction():
            base = tensor._base if written and grad and tensor._is_view() else None  # noqa: SLF001
            if base is not None:
                return _keep_view(tensor, base)
            return Kept(self.copy(tensor), requires_grad=tensor.requires_grad, written=written)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor, an earlier one if the content is the same."""
        with below_autograd():
            if tensor.nbytes <= _SMALL:
                return tensor.clone()
            key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
            known = self._known.get(key)
            copy = None if known is None else known()
            if copy is None or not torch.equal(copy, tensor):
                copy = tensor.clone()
                if len(self._known) > _MOST_KNOWN:
                    self._known = {k: ref for k, ref in self._known.items() if ref() is not None}
                self._known[key] = weakref.ref(copy)
            return copy


def check_plain(tensor: torch.Tensor) -> None:
    """Raise ``CannotReplayError`` if a tensor is not one of PyTorch's own in ordinary memory."""
    if type(tensor) not in PLAIN_TENSORS:
        message = f"tensors of the class {type(tensor).__name__}"
    elif tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        message = "tensors that are not dense"
    elif tensor.is_meta or is_functorch_wrapped_tensor(tensor) or tensor._is_zerotensor():  # noqa: SLF001
        message = "tensors without memory of their own"
    else:
        return
    raise CannotReplayError(message)


def _keep_view(tensor: torch.Tensor, base: torch.Tensor) -> Kept:
    check_plain(base)
    offset = tensor.storage_offset() - base.storage_offset()
    place = (tensor.shape, tensor.stride(), offset)
    with below_autograd():
        copy = torch.empty_strided(
            base.shape, base.stride(), dtype=base.dtype, device=base.device
        )  # fmt: skip
        copy.copy_(base)
    return Kept(copy, requires_grad=base.requires_grad, written=True, place=place)


def map_tensors(value: Any, change: Callable[[Any], Any], kind: type = torch.Tensor) -> Any:
    """Return an argument of an operator, or its result, with its tensors replaced."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)([map_tensors(each, change, kind) for each in value])
    return value


def tensors_in(result: Any) -> list[torch.Tensor]:
    """Return the tensors that an operator returned."""
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (list, tuple)):
        return [tensor for each in result for tensor in tensors_in(each)]
    return []
