"""Memory that was allocated without values, such as by ``torch.empty``: it compares to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from autogradviz.analysis.types import Op

_ALLOCATIONS: Final = frozenset(
    {
        "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty",
        "new_empty_strided",
    }
)  # fmt: skip
_COLLECTIVES: Final = ("c10d.", "_c10d_functional.", "c10d_functional.")


class Uninitialized:
    """Follows uninitialized memory through the ops of one recording.

    A tensor computed from memory that was never written has no defined values either. Memory that
    was written in part is taken for initialized by whatever computes with it, since a program
    usually reads only that part.
    """

    def __init__(self) -> None:
        self._missing: dict[int, int] = {}  # by storage, the bytes that were not written
        self._undefined: set[int] = set()  # storages without any defined value
        self._written: set[int] = set()  # ids of tensors on such storages

    def follow(self, op: Op) -> bool:
        """Add the next op; return whether its outputs are defined as far as is known."""
        if op.name in _ALLOCATIONS:
            for tensor in op.outputs:
                if tensor.storage_id is not None:
                    self._missing[tensor.storage_id] = tensor.storage_nbytes
                    self._undefined.add(tensor.storage_id)
            return False
        if not self._missing and not self._undefined:
            return True
        given = {tensor.storage_id for tensor in op.inputs}
        if op.overload.startswith(_COLLECTIVES):
            for storage_id in given:
                self._initialize(storage_id)
            return True
        written = {tensor.storage_id for tensor in op.written}
        if (given - written) & self._undefined:
            others = {tensor.storage_id for tensor in op.outputs} | written
            self._undefined |= {each for each in others if each is not None}
            return False
        for tensor in op.written:
            self._write(tensor.storage_id, tensor.tensor_id, tensor.nbytes)
        results = {tensor.storage_id for tensor in op.outputs}
        return not results & (self._missing.keys() | self._undefined)

    def _write(self, storage_id: int | None, tensor_id: int, nbytes: int) -> None:
        if storage_id is None or tensor_id in self._written:
            return
        self._undefined.discard(storage_id)
        if storage_id in self._missing:
            self._written.add(tensor_id)
            self._missing[storage_id] -= nbytes
            if self._missing[storage_id] <= 0:
                self._initialize(storage_id)

    def _initialize(self, storage_id: int | None) -> None:
        if storage_id is not None:
            self._missing.pop(storage_id, None)
            self._undefined.discard(storage_id)
