"""Fingerprints: whether two tensors hold the same content, without keeping either.

NOTE [ What a fingerprint is ]
The bits, read as integers, are summed and xor-ed: two passes over the tensor on its own device and
one number copied to the host, which waits for the device. Equal content gives equal numbers;
other content gives other ones but for chance, and for a mere change of order.

It runs below autograd, with our own dispatch mode out of the way. Where somebody else's mode is
active it is left out: that mode would see our operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch._C import _get_dispatch_stack_at, _len_torch_dispatch_stack

from autogradviz.events import NO_ID

if TYPE_CHECKING:
    from autogradviz.recorder.recorder import Recorder

_INTEGERS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_BelowAutograd = torch._C._AutoDispatchBelowAutograd  # noqa: SLF001
_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor  # noqa: SLF001
_PLAIN: Final = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
_MASK: Final = 2**63 - 1


def fingerprint(recorder: Recorder, tensor: torch.Tensor) -> int:
    """Return a number for a tensor's content, NO_ID where none can be had."""
    if type(tensor) not in _PLAIN or tensor.layout != torch.strided or tensor.numel() == 0:
        return NO_ID
    # Conjugates and negatives are bits on a tensor, a zero tensor has no memory behind it.
    if tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor():  # noqa: SLF001
        return NO_ID
    if tensor.device.type == "meta" or _is_wrapped(tensor):
        return NO_ID
    modes, mode = _len_torch_dispatch_stack(), recorder.mode
    if modes > 1 or (modes == 1 and _get_dispatch_stack_at(0) is not mode):
        return NO_ID
    suspended = mode is not None and modes == 1 and mode.suspend()
    try:
        return _read(tensor)
    finally:
        if suspended and mode is not None:
            mode.resume()


def _read(tensor: torch.Tensor) -> int:
    with _BelowAutograd():
        bits = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        bits = bits.view(_INTEGERS[bits.element_size()])
        total = int(bits.sum(dtype=torch.int64).item())
        return (total * 1_000_003 ^ int(torch.hash_tensor(bits).item())) & _MASK
