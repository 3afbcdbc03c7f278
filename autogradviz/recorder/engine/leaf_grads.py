"""Leaves: whether each requires a gradient, and how large the gradient is that it is left with.

Whether a parameter requires a gradient is told where ``requires_grad_`` is called. An assignment
to ``.requires_grad`` is C++; it is noticed when the next backward begins.

Norms are read once, when the recording ends: one pass over the gradients that are still there. So
a gradient that is NaN is known without recording values. On the CPU, where a pass over a large
model is felt, only the smaller ones are read; NaN reaches those too. With values all are read,
after each backward. Losses are copied when their backward begins, and read with the gradients, so
that nothing waits for the device in between.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from contextlib import contextmanager
from itertools import chain, takewhile
from math import isfinite
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.events import NO_ID, NormRead, RequiresGradChanged
from autogradviz.recorder.ids.tensors import version_of
from autogradviz.recorder.ops.fingerprints import below_autograd, readable
from autogradviz.recorder.torch_internals.dynamo import transparent
from autogradviz.recorder.torch_internals.patch_method import watched_method

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from autogradviz.events import Place
    from autogradviz.recorder.recorder import Recorder

    Read = tuple[int, int, Place, torch.Tensor]  # backward, tensor, place, what is read

MAX_BYTES: Final = 64_000_000  # of gradients on the CPU, the small ones first
_WIDER: Final = {torch.float64: torch.float64, torch.complex128: torch.float64}
"""Types that are not summed in float32."""
_BYTES: Final = {torch.float32: 4, torch.float64: 8, torch.float16: 2, torch.bfloat16: 2}
"""Bytes of an entry, of the types that gradients mostly have."""
MAX_LOSSES: Final = 100
"""Losses that are read at the end of a long recording."""

_NoFunctions = torch._C.DisableTorchFunction  # noqa: SLF001


class LeafTable:
    """Knows leaves without holding them."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._tell_norm = recorder.emitter(NormRead)
        self._leaves: dict[int, weakref.ref[torch.Tensor]] = {}
        self._requires: dict[int, bool] = {}
        self._losses: list[Read] = []
        self.reached: dict[int, int] = {}
        """By leaf, the last backward that accumulated into it."""
        self._read_last = NO_ID  # the last of them, when they were read

    def met(self, tensor_id: int, leaf: torch.Tensor) -> None:
        """Know a leaf from now on."""
        if tensor_id not in self._leaves:
            self._leaves[tensor_id] = weakref.ref(leaf)
            self._requires[tensor_id] = leaf.requires_grad

    def let_go(self, leaf: torch.Tensor) -> None:
        """Forget a leaf, until it is met again."""
        for tensor_id in [n for n, ref in list(self._leaves.items()) if ref() is leaf]:
            del self._leaves[tensor_id], self._requires[tensor_id]

    def set(self, leaf: torch.Tensor) -> None:
        """Record that a leaf was told whether it requires a gradient."""
        with _NoFunctions():
            if not leaf.is_leaf:
                return
            recorder = self._recorder
            tensor_id = recorder.tensors.number(leaf)
            known = self._requires.get(tensor_id)
            self.met(tensor_id, leaf)
            if known != leaf.requires_grad:
                self._requires[tensor_id] = leaf.requires_grad
                stack_id = recorder.stacks.capture(3) if recorder.with_stacks else None
                recorder.emit(RequiresGradChanged, tensor_id, leaf.requires_grad, stack_id=stack_id)

    def look_again(self) -> None:
        """Record which known leaves were told so by assignment; a backward is about to begin."""
        for tensor_id, reference in list(self._leaves.items()):  # other threads add
            leaf = reference()
            if leaf is None:
                continue
            requires = leaf.requires_grad
            if requires != self._requires[tensor_id]:
                self._requires[tensor_id] = requires
                self._recorder.emit(RequiresGradChanged, tensor_id, requires)

    def began(self, backward_id: int, outputs: Sequence[Any]) -> None:
        """Copy the scalars that a backward begins at."""
        recorder = self._recorder
        for root in outputs:
            if not isinstance(root, torch.Tensor):
                continue
            with _NoFunctions(), below_autograd():
                if readable(root) and root.numel() == 1:
                    tensor_id = recorder.tensors.number(root)
                    self._losses.append((backward_id, tensor_id, "root", root.clone()))

    def losses_after(self, backward_id: int) -> list[Read]:
        """Return the losses, as they were copied, of backwards with larger numbers."""
        newer = takewhile(lambda loss: loss[0] > backward_id, reversed(self._losses))
        return list(newer)[::-1]

    def read(self) -> None:
        """Record the norms of losses, and of the gradients that leaves were left with."""
        with _NoFunctions(), below_autograd():
            thread = self._recorder.threads.local.state.number
            tell, groups = self._tell_norm, defaultdict[Any, list["Read"]](list)
            for one in chain(self._losses, self._gradients()):
                tensor = one[3]
                groups[None if tensor.is_cpu else tensor.device, tensor.dtype].append(one)
            for (device, dtype), group in groups.items():
                found = [one[3] for one in group]
                if dtype.is_complex:
                    found = [torch.view_as_real(tensor) for tensor in found]
                norms = torch._foreach_norm(found, 2, _WIDER.get(dtype, torch.float32))  # noqa: SLF001
                # A stack waits for the device once; on the host it costs more than it saves.
                read = (
                    [norm.item() for norm in norms]
                    if device is None
                    else torch.stack(norms).tolist()
                )
                for (backward_id, tensor_id, place, _), tensor, norm in zip(
                    group, found, read, strict=True
                ):
                    checked = norm if isfinite(norm) else _checked(norm, tensor)
                    tell(thread, None, backward_id, tensor_id, place, checked)
        self._losses.clear()
        self._read_last = next(reversed(self.reached), self._read_last)
        self.reached.clear()

    def newest(self) -> torch.Tensor | None:
        """Return the leaf that a backward reached last, if it lives."""
        reference = self._leaves.get(next(reversed(self.reached), self._read_last))
        return None if reference is None else reference()

    def newest_gradient(self) -> tuple[int, int] | None:
        """Return which gradient that leaf has, and its version; None where it has none."""
        with _NoFunctions():
            leaf = self.newest()
            gradient = None if leaf is None else leaf.grad
            return None if gradient is None else (id(gradient), version_of(gradient))

    def forget(self) -> None:
        """Let go of leaves that have died, and of all but the newest losses."""
        for tensor_id in [key for key, leaf in list(self._leaves.items()) if leaf() is None]:
            del self._leaves[tensor_id], self._requires[tensor_id]
            self.reached.pop(tensor_id, None)
        del self._losses[:-MAX_LOSSES]

    @property
    def living(self) -> AbstractSet[int]:
        """The leaves that are alive, and the losses whose norms are read at the end."""
        return self._leaves.keys() | {tensor_id for _, tensor_id, *_ in self._losses}

    def _gradients(self) -> list[Read]:
        found: list[tuple[int, Read]] = []  # by bytes
        for tensor_id, backward_id in list(self.reached.items()):
            reference = self._leaves.get(tensor_id)
            leaf = None if reference is None else reference()
            gradient = None if leaf is None else leaf.grad
            if gradient is None:
                continue
            nbytes = _ordinary(gradient)
            if nbytes or readable(gradient):
                one: Read = (backward_id, tensor_id, "gradient", gradient)
                found.append((nbytes or gradient.nbytes, one))
        found.sort(key=itemgetter(0))
        if self._recorder.with_fingerprints or sum([nbytes for nbytes, _ in found]) <= MAX_BYTES:
            return [one for _, one in found]
        taken, read = [], 0
        for nbytes, one in found:
            read += nbytes if one[3].is_cpu else 0
            if read <= MAX_BYTES:
                taken.append(one)
        return taken


def _ordinary(gradient: torch.Tensor) -> int:
    """Return the bytes of a gradient as most are, for which half of ``readable`` says enough.

    Real numbers on the host, one behind the other; 0 for any other one. What functorch wraps, and
    what is not strided, has no storage.
    """
    entry = _BYTES.get(gradient.dtype)
    if entry is None or type(gradient) is not torch.Tensor or not gradient.is_cpu:
        return 0
    try:
        storage = gradient.untyped_storage()
    except RuntimeError:
        return 0
    if gradient.is_nested or gradient.is_neg() or gradient._is_zerotensor():  # noqa: SLF001
        return 0
    nbytes = gradient.numel() * entry
    there = storage.nbytes() - gradient.storage_offset() * entry >= nbytes
    return nbytes if there and gradient.is_contiguous() else 0


def _checked(norm: float, tensor: torch.Tensor) -> float | None:
    """Return a norm that is not finite again, None unless only the squares overflowed."""
    if bool(torch.isfinite(tensor).all()):
        norm = float(torch.linalg.vector_norm(tensor, 2, dtype=torch.float64))
    return norm if isfinite(norm) else None


@contextmanager
def observe_requires_grad(recorder: Recorder) -> Iterator[None]:
    """Record calls of ``requires_grad_`` while the context is open."""
    original = torch.Tensor.requires_grad_

    @transparent
    def requires_grad_(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        recorder.guarded("leaves", recorder.leaves.set, self)
        return result

    with watched_method("requires_grad_", requires_grad_):
        yield
