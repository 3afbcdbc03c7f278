"""Reads the tensors that an operator takes and returns: ids, versions and fingerprints.

Most operators take and return one plain tensor; ``OpMode`` reads those itself, without a loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from autogradviz.events import NO_ID
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction
from autogradviz.recorder.torch_internals.wrapper_tensors import (
    PLAIN_TENSORS,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.recorder.ops.hashes_norms_and_draws import Fingerprints
    from autogradviz.recorder.ops.op_signatures import Signature
    from autogradviz.recorder.python_engine.tensor_ids import TensorTable
    from autogradviz.recorder.python_engine.version_table import VersionTable, Written
    from autogradviz.recorder.session import Session

Ints: TypeAlias = tuple[int, ...]

_Tensor: Final = torch.Tensor


def _tensors(value: Any) -> Sequence[torch.Tensor]:
    """Return a tensor, or those in a list or tuple; none of anything else."""
    if isinstance(value, _Tensor):
        return (value,)
    if isinstance(value, (list, tuple)):
        return [item for item in value if isinstance(item, _Tensor)]
    return ()


Inputs: TypeAlias = tuple[bool, Ints, Ints, "Sequence[Written]", Ints]
"""Whether any input requires a gradient, ids and versions, the tensors written, fingerprints."""


class TensorReader:
    """Reads the inputs and outputs of operators."""

    def __init__(
        self,
        session: Session,
        tensors: TensorTable,
        versions: VersionTable,
        fingerprints: Fingerprints,
    ) -> None:
        self._tensors = tensors
        self._versions = versions
        self._fingerprint = fingerprints.of
        self._session = session

    def read_inputs(
        self,
        signature: Signature,
        args: Any,
        kwargs: Any,
        fresh: bool,  # noqa: FBT001 - Python calls functions with keyword-only arguments more slowly
        plain: bool,  # noqa: FBT001
    ) -> Inputs | None:
        """Read the tensors that an op takes.

        Args:
            signature: of the op.
            args: its positional arguments.
            kwargs: its keyword arguments.
            fresh: find out whether any of them requires a gradient.
            plain: nothing overrides functions of plain tensors, and no contents are read.

        Returns:
            None if ``plain`` and one of the tensors is of a subclass.
        """
        tensors = self._tensors
        intern, storage_of = tensors.intern, tensors.storage_of
        with_fingerprints = self._session.with_fingerprints
        known = self._versions.known
        ids, versions, hashes = [], [], []
        written: list[Written] | None = None
        requires_grad = False
        given = len(args)
        for position, keyword, writes in signature.places:
            value = args[position] if position < given else kwargs.get(keyword)
            if value is None:
                continue
            for tensor in (value,) if type(value) is _Tensor else _tensors(value):
                if plain and type(tensor) is not _Tensor and type(tensor) not in PLAIN_TENSORS:
                    return None
                tensor_id = intern(tensor)
                try:
                    version = tensor._version  # noqa: SLF001 - has no public name
                except RuntimeError:  # inference mode
                    version = NO_ID
                ids.append(tensor_id)
                versions.append(version)
                if fresh and tensor.requires_grad:
                    requires_grad, fresh = True, False
                storage_id = storage_of[tensor_id]
                if storage_id >= len(known) or known[storage_id] != version:
                    self._versions.seen(tensor_id, storage_id, version)
                if with_fingerprints:
                    hashes.append(self._fingerprint(tensor))
                if writes:
                    written = written or []
                    written.append((tensor_id, tensor, version))
        return requires_grad, tuple(ids), tuple(versions), written or (), tuple(hashes)

    def read_inputs_no_override(
        self,
        signature: Signature,
        args: Any,
        kwargs: Any,
        fresh: bool,  # noqa: FBT001
    ) -> Inputs:
        """Read the tensors that an op takes, contents too, with function overrides disabled."""
        with DisableTorchFunction():
            inputs = self.read_inputs(signature, args, kwargs, fresh, plain=False)
        assert inputs is not None
        return inputs

    def read_outputs(
        self, signature: Signature, result: Any, written: Sequence[Written]
    ) -> tuple[Ints, Ints, Ints]:
        """Read the tensors that an op returned.

        Args:
            signature: of the op.
            result: its result.
            written: the inputs that it wrote.

        Returns:
            Ids, versions as they will be when the op has returned, and fingerprints.
        """
        intern, with_fingerprints = self._tensors.intern, self._session.with_fingerprints
        raised = {}
        if written and signature.bumps_later:
            raised = {tensor_id: before + 1 for tensor_id, _, before in written if before != NO_ID}
        ids, versions, hashes = [], [], []
        with DisableTorchFunction():
            for tensor in _tensors(result):
                tensor_id = intern(tensor, None, True)
                ids.append(tensor_id)
                versions.append(raised[tensor_id] if tensor_id in raised else version_of(tensor))
                if with_fingerprints:
                    hashes.append(self._fingerprint(tensor))
        return tuple(ids), tuple(versions), tuple(hashes)


# --- gradients that can be read without the checks that unusual tensors need ----------------------


_ITEMSIZES: Final = {torch.float32: 4, torch.float64: 8, torch.float16: 2, torch.bfloat16: 2}
"""Bytes of an entry, for the dtypes that most gradients have."""


def ordinary_nbytes(gradient: torch.Tensor) -> int:
    """Return the bytes of a contiguous real gradient on the host, 0 for any other one.

    For these half of the checks of ``readable`` are enough. Tensors that functorch wraps, and those
    that are not strided, have no storage.
    """
    itemsize = _ITEMSIZES.get(gradient.dtype)
    if itemsize is None or type(gradient) is not torch.Tensor or not gradient.is_cpu:
        return 0
    try:
        storage = gradient.untyped_storage()
    except RuntimeError:
        return 0
    if gradient.is_nested or gradient.is_neg() or gradient._is_zerotensor():  # noqa: SLF001
        return 0
    nbytes = gradient.numel() * itemsize
    allocated = storage.nbytes() - gradient.storage_offset() * itemsize >= nbytes
    return nbytes if allocated and gradient.is_contiguous() else 0
