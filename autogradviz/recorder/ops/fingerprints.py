"""Fingerprints of tensor contents: whether two tensors are equal, and whether all is finite.

NOTE [ What a fingerprint is ]
The bits, read as integers, are summed and xor-ed: passes over the tensor on its own device, and two
numbers copied to the host, which waits for the device. Equal contents give equal numbers, whatever
their layout; different contents give different ones except by chance, and except if only the order
differs. A third pass, once for each content, finds NaN and infinities.

A small tensor on the host is hashed byte by byte, which is faster than calling operators and also
sensitive to order: a mask, a permutation, a transposed square.

A large tensor on the host with entries of four bytes is read two entries at a time, as integers of
eight bytes, which PyTorch does several times faster than it widens them one by one.

It runs below autograd and below all dispatch modes: its operators are not observed.
"""

from __future__ import annotations

import ctypes
import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import torch

from autogradviz.events import NO_ID, NotFiniteSeen
from autogradviz.recorder.torch_internals.plain_tensors_and_versions import PLAIN_TENSORS
from autogradviz.recorder.torch_internals.private_api import (
    AutoDispatchBelowAutograd,
    DisableTorchDispatch,
)
from autogradviz.recorder.torch_internals.unreadable_tensors import why_unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.recorder.session import Session

_INTEGERS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MASK: Final = 2**63 - 1
_MASK_32: Final = 2**32 - 1
_MIXER: Final = 0x9E3779B97F4A7C15
_SMALL: Final = 1 << 12
"""Bytes up to which a tensor on the host is hashed byte by byte."""
_LARGE: Final = 1 << 17
"""Entries from which on pairs are read; below that, the calls cost more than the reading."""
_CHUNK: Final = 1 << 15
"""Pairs that are shifted at once: as many as fit into the cache of a core."""
_FLOATING: Final = frozenset(
    {
        torch.float16, torch.bfloat16, torch.float32, torch.float64,
        torch.complex64, torch.complex128,
    }
)  # fmt: skip


MAX_CONTENTS: Final = 1_000_000
"""A long recording forgets which contents it searched for NaN when there are more than this."""


class Fingerprints:
    """Computes fingerprints, and records the contents that are not finite."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._contents: set[int] = set()  # fingerprints of contents that were searched for NaN

    def of(self, tensor: torch.Tensor) -> int:
        """Return the fingerprint of a tensor's content, NO_ID if it cannot be read."""
        if not _has_bits(tensor):
            self._session.could_not_read("fingerprints", tensor)
            return NO_ID
        with DisableTorchDispatch(), AutoDispatchBelowAutograd():
            real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
            bits = real.view(_INTEGERS[real.element_size()])
            if bits.is_cpu and bits.nbytes <= _SMALL:
                found = _of_bytes(bits) & _MASK
            else:
                once, times = _unexpanded(bits)
                total, parity = _sum_and_xor(once)
                found = (total * times * _MIXER ^ parity * (times % 2)) & _MASK
            if tensor.dtype in _FLOATING and found not in self._contents:
                self._contents.add(found)
                self._find_nan(real, found)
            return found

    def hash_of(self, tensor: torch.Tensor) -> int | None:
        """Return the fingerprint of a tensor's content, None unless fingerprints are recorded."""
        found = self.of(tensor) if self._session.with_fingerprints else NO_ID
        return None if found == NO_ID else found

    def _find_nan(self, tensor: torch.Tensor, content: int) -> None:
        # A sum is NaN or infinite if an entry is; if only the sum overflowed, both counts are zero.
        once, times = _unexpanded(tensor)
        if bool(torch.isfinite(once.sum())):
            return
        nans, infinities = int(once.isnan().sum()), int(once.isinf().sum())
        if nans or infinities:
            self._session.emit(NotFiniteSeen, content, nans * times, infinities * times)

    def prune(self) -> None:
        """Forget the contents that were searched for NaN, if there are too many."""
        if len(self._contents) > MAX_CONTENTS:
            self._contents.clear()


def _unexpanded(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return the part that an expanded tensor repeats, and how often."""
    times = 1
    for dim, step in enumerate(tensor.stride()):
        if step == 0:
            times *= tensor.shape[dim]
            tensor = tensor.narrow(dim, 0, 1)
    return tensor, times


def _of_bytes(bits: torch.Tensor) -> int:
    packed = bits.contiguous()
    content = ctypes.string_at(packed.data_ptr(), packed.nbytes)
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def _sum_and_xor(bits: torch.Tensor) -> tuple[int, int]:
    four = bits.element_size() == 4  # noqa: PLR2004
    row = _in_memory_order(bits) if four and bits.is_cpu and bits.numel() >= _LARGE else None
    if row is None:
        total, parity = bits.sum(dtype=torch.int64).item(), torch.hash_tensor(bits).item()
    else:
        even = row.numel() // 2 * 2
        total, parity = _sum_and_xor_of_pairs(row[:even].view(torch.int64))
        for last in row[even:].tolist():
            total, parity = total + last, parity ^ last
    return int(total), int(parity) & (_MASK_32 if four else -1)


def _sum_and_xor_of_pairs(pairs: torch.Tensor) -> tuple[int, int]:
    """Return the sum and the xor of both halves of each integer of eight bytes."""
    parity = int(torch.hash_tensor(pairs).item())
    total = -(pairs.numel() << 31)
    for part in pairs.split(_CHUNK):
        # With its sign bit flipped the low half is 2**31 more than its value and never negative:
        # then a shift leaves the high half.
        shifted = part ^ (1 << 31)
        both = shifted.sum().item()
        high = shifted.bitwise_right_shift_(32).sum().item()
        total += high + (both - (high << 32)) % (1 << 64)
    return int(total), parity ^ (parity >> 32)


def _in_memory_order(bits: torch.Tensor) -> torch.Tensor | None:
    """Return a tensor's entries in memory order, None if they have gaps or are not aligned."""
    if bits.storage_offset() % 2 or bits.data_ptr() % 8:
        return None
    strides = bits.stride()
    row = bits.permute(sorted(range(bits.dim()), key=strides.__getitem__, reverse=True))
    return row.view(-1) if row.is_contiguous() else None


def is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is of a class of PyTorch's own that holds its entries itself."""
    return type(tensor) in PLAIN_TENSORS


def readable(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has floating or complex entries that can be read on its device."""
    return tensor.dtype in _FLOATING and _has_bits(tensor)


def _has_bits(tensor: torch.Tensor) -> bool:
    if not is_plain(tensor) or why_unreadable(tensor) or tensor.numel() == 0:
        return False
    # A capture of a CUDA graph does not compute, and fails when something waits for the device.
    if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    # Conjugation and negation are bits of the tensor object.
    return not (tensor.is_conj() or tensor.is_neg())


@contextmanager
def below_autograd() -> Iterator[None]:
    """Run operators below autograd and below every dispatch mode, so that nothing observes them."""
    with DisableTorchDispatch(), AutoDispatchBelowAutograd():
        yield
