"""Changes of version counters that no operator made: manual increments, and restored counters.

Operators emit the writes that they make. An engine also emits when it finds a counter
that is higher than any recorded write left it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from autogradviz.events import NO_ID, VersionBumped
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.patch_functions import patched
from autogradviz.recorder.torch_internals.plain_tensors_and_versions import version_of
from autogradviz.recorder.torch_internals.private_api import (
    C,
    DisableTorchFunction,
    current,
    preserve_version_counter,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from autogradviz.recorder.engine_interface import TensorIds, VersionCounters
    from autogradviz.recorder.session import Session


@contextmanager
def observe_restored_versions(
    session: Session, tensors: TensorIds, versions: VersionCounters
) -> Iterator[None]:
    """Record ``_unsafe_preserve_version_counter`` while the context is open."""
    original = preserve_version_counter.__exit__

    def record(restored: Sequence[torch.Tensor]) -> None:
        with DisableTorchFunction():
            for tensor in restored:
                version = version_of(tensor)
                if version != NO_ID:
                    versions.restored(tensors.intern(tensor), version)

    @skip_frame
    def leave(self: Any, *error: Any) -> None:
        original(self, *error)
        session.guarded("version", record, self.tensors)

    with patched(preserve_version_counter, __exit__=leave):
        yield


@contextmanager
def observe_increments(
    session: Session, tensors: TensorIds, versions: VersionCounters
) -> Iterator[None]:
    """Record ``torch.autograd.graph.increment_version`` while the context is open."""
    original = current("_C._increment_version")

    def record(incremented: list[torch.Tensor]) -> None:
        stack_id = session.stack_id()
        for tensor in incremented:
            after = version_of(tensor)
            if after == NO_ID:
                continue
            tensor_id = tensors.intern(tensor)
            versions.bumped(tensor_id, after)
            storage_id = tensors.storage_id(tensor_id)
            session.emit(
                VersionBumped, tensor_id, storage_id, after - 1, after, "increment_version", None,
                stack_id=stack_id,
            )  # fmt: skip

    @skip_frame
    def increment(given: Any) -> None:
        listed = list(given)
        original(listed)
        with DisableTorchFunction():
            session.guarded("increment_version", record, listed)

    with patched(C, _increment_version=increment):
        yield
