"""Storages whose memory the program frees and allocates again, while tensors refer to them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from autogradviz.events import StorageResized
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.patch_functions import patched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.recorder.engine_interface import TensorIds
    from autogradviz.recorder.session import Session


@contextmanager
def observe_resizes(session: Session, tensors: TensorIds) -> Iterator[None]:
    """Record ``UntypedStorage.resize_`` while the context is open."""
    original = torch.UntypedStorage.resize_

    def record(storage: torch.UntypedStorage) -> None:
        storage_id = tensors.id_of_storage(storage)
        if storage_id is not None:
            nbytes = storage.nbytes()
            session.emit(StorageResized, storage_id, nbytes, stack_id=session.stack_id())

    @skip_frame
    def resize_(self: torch.UntypedStorage, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        session.guarded("storages", record, self)
        return result

    with patched(torch.UntypedStorage, resize_=resize_):
        yield
