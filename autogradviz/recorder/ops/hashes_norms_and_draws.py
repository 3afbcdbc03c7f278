"""Values of results: hashes, norms, random numbers."""

from __future__ import annotations

import ctypes
import hashlib
import weakref
from collections import deque
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from autogradviz.events import NO_ID, NotFiniteSeen, OutputNormRead, RandomDrawn
from autogradviz.recorder.torch_internals.nodes import safe_grad_fn
from autogradviz.recorder.torch_internals.private_api import (
    AutoDispatchBelowAutograd,
    DisableTorchDispatch,
    DisableTorchFunction,
)
from autogradviz.recorder.torch_internals.unreadable_tensors import why_unreadable
from autogradviz.recorder.torch_internals.wrapper_tensors import (
    PLAIN_TENSORS,
    completed_inner_tensor,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from autogradviz.recorder.session import Session


# --- fingerprints ---------------------------------------------------------------------------------
#
# Fingerprints of tensor contents: whether two tensors are equal, and whether all is finite.
#
# NOTE [ What a fingerprint is ] The bits, read as integers, are summed and xor-ed: passes over the
# tensor on its own device, and two numbers copied to the host, which waits for the device. Equal
# contents give equal numbers, whatever their layout; different contents give different ones except
# by chance, and except if only the order differs. A third pass, once for each content, finds NaN
# and infinities.
#
# A small tensor on the host is hashed byte by byte, which is faster than calling operators and also
# sensitive to order: a mask, a permutation, a transposed square.
#
# A large tensor on the host with entries of four bytes is read two entries at a time, as integers
# of eight bytes, which PyTorch does several times faster than it widens them one by one.
#
# It runs below autograd and below all dispatch modes: its operators are not observed.


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


def readable_numbers(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has real or whole entries that can be read on its device."""
    return not tensor.is_complex() and _has_bits(tensor)


def number_of(tensor: torch.Tensor) -> float | None:
    """Return the number in a tensor of one number on the CPU, None if it cannot be read."""
    known = tensor.is_cpu and tensor.numel() == 1 and not tensor.is_complex() and _has_bits(tensor)
    return float(tensor.item()) if known else None


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


# --- output norms ---------------------------------------------------------------------------------
#
# The sum and the L2 norm of each output of an op, by which runs are compared that divide tensors.
#
# The entries of a tensor that is divided among ranks are summed by each; the sums add up to that of
# the whole tensor, and so do the squares of the norms. C++ computes the same
# (``native/output_norms.h``).


_Tensor: Final = torch.Tensor


class OutputNorms:
    """Reads the outputs of ops."""

    def __init__(self, session: Session) -> None:
        self._emit = session.emitter(OutputNormRead)
        self._could_not_read = session.could_not_read

    def read(self, result: Any, op_seq: int, thread: int) -> None:
        """Record the sum and the norm of each floating tensor that an op returned."""
        given = result if isinstance(result, (list, tuple)) else (result,)
        tensors = [each for each in given if isinstance(each, _Tensor)]
        with DisableTorchFunction():
            for position, tensor in enumerate(tensors):
                found = sum_and_norm(tensor)
                if found is not None:
                    self._emit(thread, None, op_seq, position, *found)
                else:
                    self._could_not_read("norms", tensor)


def sum_and_norm(tensor: torch.Tensor) -> tuple[float | None, float | None] | None:
    """Return the sum and the L2 norm of a tensor, of a ``DTensor`` those of its local part.

    Call it with function overrides disabled.

    Returns:
        ``(None, None)`` if an entry is NaN or infinite; None if the tensor cannot be read.
    """
    entries = tensor if is_plain(tensor) else completed_inner_tensor(tensor)
    if entries is None or not readable(entries):
        return None
    with below_autograd():
        real = torch.view_as_real(entries) if entries.is_complex() else entries
        total = float(real.sum(dtype=torch.float64))
        norm = float(torch.linalg.vector_norm(real, dtype=torch.float64))
    return (total, norm) if isfinite(total) and isfinite(norm) else (None, None)


# --- operators that draw random numbers, and the generators that they draw from -------------------


_RATES: Final = {"dropout_p", "dropout"}  # nothing is drawn if the rate is 0
_SWITCHES: Final = {"train", "training"}
_NEVER_DRAW: Final = {
    "aten::_fused_sdp_choice",  # tagged, but only chooses a kernel
    "aten::_scaled_dot_product_flash_attention_for_cpu",  # tagged, but raises if it should drop
}


class Draw(NamedTuple):
    """The arguments that decide whether an operator draws random numbers."""

    generator: tuple[int, str] | None  # position and keyword of that argument
    needed: tuple[tuple[int, str], ...]  # it draws only if none of these arguments is zero

    def source(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str | None:
        """Return the generator that a call draws from, "default" or "given"; None if none."""
        if not all(_argument(place, args, kwargs) for place in self.needed):
            return None
        given = self.generator and _argument(self.generator, args, kwargs)
        return "default" if given is None else "given"


def _argument(place: tuple[int, str], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    position, keyword = place
    return args[position] if position < len(args) else kwargs.get(keyword)


def read_draw(func: Any, schema: Any) -> Draw | None:
    """Return the arguments that control an operator's draws, None if it never draws."""
    if torch.Tag.nondeterministic_seeded not in func.tags or schema.name in _NEVER_DRAW:
        return None
    rates = {*_RATES, "p"} if "dropout" in schema.name else _RATES
    places = {argument.name: (at, argument.name) for at, argument in enumerate(schema.arguments)}
    needed = [place for name, place in places.items() if name in rates | _SWITCHES]
    return Draw(places.get("generator"), tuple(needed))


def emit_draw(
    draw: Draw, session: Session, args: Any, kwargs: Any, row: tuple[Any, ...], result: Any
) -> None:
    """Record that an op drew random numbers, if it did.

    Args:
        draw: of the operator.
        session: of the recording.
        args: its positional arguments.
        kwargs: its keyword arguments.
        row: of its ``OpCalled``.
        result: of the op.
    """
    source = draw.source(args, kwargs)
    drawn = result[0] if isinstance(result, tuple) else result
    if source is not None and isinstance(drawn, torch.Tensor):
        seq, _, thread, stack_id, name, *_ = row
        device = str(drawn.device)
        session.emit(RandomDrawn, name, seq, source, device, stack_id=stack_id, thread=thread)


# --- the most recent results, weakly referenced: the way to graphs that no backward entered -------


REMEMBERED: Final = 64
_reference: Final = weakref.ref


class RecentOutputs:
    """Remembers the last results of operators and modules without keeping them."""

    def __init__(self) -> None:
        self._recent: deque[weakref.ref[torch.Tensor]] = deque(maxlen=REMEMBERED)

    def remember(self, result: Any) -> None:
        """Add a weak reference to a result, whose graph may still exist at the end."""
        first = result
        if type(first) is not _Tensor and isinstance(result, (tuple, list)) and result:
            first = result[0]
        if type(first) is _Tensor:
            self._recent.append(_reference(first))

    def release(self, tensor: torch.Tensor) -> None:
        """Drop the weak references to a tensor."""
        kept = [ref for ref in self._recent if ref() is not tensor]
        self._recent.clear()
        self._recent.extend(kept)

    def nodes(self) -> list[Any]:
        """Return the nodes of the results that are alive, the newest first."""
        alive = [tensor for ref in self._recent if (tensor := ref()) is not None]
        nodes = [safe_grad_fn(tensor) for tensor in reversed(alive) if tensor.requires_grad]
        return [node for node in nodes if node is not None]
