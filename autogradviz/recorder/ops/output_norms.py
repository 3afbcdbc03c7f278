"""The sum and the L2 norm of each output of an op, by which runs are compared that divide tensors.

The entries of a tensor that is divided among ranks are summed by each; the sums add up to that of
the whole tensor, and so do the squares of the norms. C++ computes the same
(``native/output_norms.h``).
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import torch

from autogradviz.events import OutputNormRead
from autogradviz.recorder.ops.fingerprints import below_autograd, is_plain, readable
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction
from autogradviz.recorder.torch_internals.wrapper_tensors import completed_inner_tensor

if TYPE_CHECKING:
    from autogradviz.recorder.session import Session

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
