"""Copies of the tensors that operators took, shared while their content stays the same."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.recorder.ops.hashes_norms_and_draws import below_autograd
from autogradviz.recorder.torch_internals.nodes import slots_of
from autogradviz.recorder.torch_internals.private_api import (
    DisableTorchFunction,
)
from autogradviz.recorder.torch_internals.unreadable_tensors import class_text, why_unreadable
from autogradviz.recorder.torch_internals.wrapper_tensors import PLAIN_TENSORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_SMALL: Final = 1 << 12
"""Bytes up to which a second copy costs less than a comparison with the first one."""
_MOST_KNOWN: Final = 20_000


class CannotReplayError(Exception):
    """An operator, or a node, cannot be run again; the message says why."""


class Kept:
    """A tensor argument as it was when its operator ran.

    Attributes:
        row: a copy of its content in the order of its memory, or of that of its base if the
            operator wrote into a view; a device if only its shape is needed.
        shape: of the tensor, or of its base.
        strides: in the same way.
        requires_grad: in the same way.
        dtype: in the same way.
        written: whether the operator writes it.
        place: shape, strides and offset in the base; None for a tensor that is no written view.
    """

    __slots__ = ("dtype", "place", "requires_grad", "row", "shape", "strides", "written")

    def __init__(self, tensor: torch.Tensor, row: Any, *, written: bool, place: Any = None) -> None:
        self.row = row
        self.shape = tensor.shape
        self.strides = tensor.stride() if _is_dense(tensor) else None
        self.requires_grad = tensor.requires_grad
        self.dtype = tensor.dtype
        self.written = written
        self.place = place

    def tensor(self) -> torch.Tensor:
        """Return the tensor; call it without gradients, or on what needs none."""
        if isinstance(self.row, torch.Tensor):
            return (
                self.row if self.strides is None else self.row.as_strided(self.shape, self.strides)
            )
        if self.strides is None:
            return torch.empty(self.shape, dtype=self.dtype, device=self.row)
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=self.row)


class KeptTensors:
    """Keeps copies of tensors; equal contents at the same memory share a copy while it lives."""

    def __init__(self) -> None:
        self._known: dict[Any, weakref.ref[torch.Tensor]] = {}

    def keep(self, tensor: torch.Tensor, *, written: bool, grad: bool, content: bool) -> Kept:
        """Return a copy of an argument.

        Args:
            tensor: the argument.
            written: the operator writes it.
            grad: gradients are recorded: a write into a view changes the graph of its base.
            content: the derivative depends on more than the shape; that of a view does not.

        Raises:
            CannotReplayError: it cannot be copied.
        """
        with DisableTorchFunction():
            check_plain(tensor)
            base = tensor._base if written and grad and tensor._is_view() else None  # noqa: SLF001
            if base is None:
                row = self.row(tensor) if content else tensor.device
                return Kept(tensor, row, written=written)
            check_plain(base)
            offset = tensor.storage_offset() - base.storage_offset()
            place = (tensor.shape, tensor.stride(), offset)
            if not _is_dense(base):
                message = "a write into a view of a tensor with gaps"
                raise CannotReplayError(message)
            return Kept(base, self.row(base), written=True, place=place)

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor.

        Raises:
            CannotReplayError: it cannot be copied.
        """
        with DisableTorchFunction():
            check_plain(tensor)
        kept = Kept(tensor, self.row(tensor), written=False)
        with below_autograd():  # or its view would be recorded as an op of the program
            return kept.tensor()

    def row(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor's content in the order of its memory.

        A tensor with gaps is copied as it is. Transposed and reshaped views share a copy.
        """
        with below_autograd():
            if _is_dense(tensor):
                tensor = tensor.as_strided((tensor.numel(),), (1,))
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


def _is_dense(tensor: torch.Tensor) -> bool:
    """Return whether a tensor's entries fill a part of its memory, each once, in any order."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for step, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length != 1:
            if step != expected:
                return False
            expected *= length
    return True


def check_plain(tensor: torch.Tensor) -> None:
    """Raise ``CannotReplayError`` if a tensor is not one of PyTorch's own in ordinary memory.

    Call it with function overrides disabled.
    """
    kind = type(tensor)
    message = why_unreadable(tensor) or ("" if kind in PLAIN_TENSORS else class_text(kind))
    if message:
        raise CannotReplayError(message)


def map_tensors(value: Any, change: Callable[[Any], Any], kind: type = torch.Tensor) -> Any:
    """Return an argument of an operator, or its result, with its tensors replaced."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, (list, tuple)):
        parts = [map_tensors(each, change, kind) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def tensors_in(result: Any) -> list[torch.Tensor]:
    """Return the tensors that an operator returned."""
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (list, tuple)):
        return [tensor for each in result for tensor in tensors_in(each)]
    return []


def changed_slot(node: Any, again: Any) -> str:
    """Return the name of the first saved tensor that differs from that of a new node, else ""."""
    for name, _ in slots_of(type(node)):
        for now, then in zip(_saved(node, name), _saved(again, name), strict=False):
            if why_unreadable(now) or why_unreadable(then):
                continue
            if now.shape != then.shape or not torch.equal(now.detach(), then.detach()):
                return name.removeprefix("_raw_saved_")
    return ""


def has_hooks(node: Any) -> bool:
    """Return whether saved-tensor hooks packed a saved tensor of a node."""
    for name, _ in slots_of(type(node)):
        slot = getattr(node, name)
        for each in slot if isinstance(slot, (list, tuple)) else [slot]:
            if getattr(each, "unpack_hook", None) is not None:
                return True
    return False


def _saved(node: Any, name: str) -> Iterator[torch.Tensor]:
    """Yield the tensors in a slot; those that hooks packed are not unpacked."""
    try:
        slot = getattr(node, name)
    except RuntimeError:  # the graph was freed
        return
    for each in slot if isinstance(slot, (list, tuple)) else [slot]:
        data = getattr(each, "data", None)
        if getattr(each, "unpack_hook", None) is None and isinstance(data, torch.Tensor):
            yield data
