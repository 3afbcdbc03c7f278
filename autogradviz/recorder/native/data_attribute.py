"""Reads of ``tensor.data``, which PyTorch reports as an operator to dispatch modes only."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from autogradviz.recorder.torch_internals.patch_functions import patched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.recorder.native.extension_types import Recording
    from autogradviz.recorder.session import Session


@contextmanager
def observe_data_reads(session: Session, recording: Recording) -> Iterator[None]:
    """Record each read of ``tensor.data`` as a call of ``detach`` while the context is open."""
    with patched(torch.Tensor, data=_Data(session, recording)):
        yield


class _Data:
    """The attribute on a tensor; PyTorch's own when it is read from the class.

    ``__torch_function__`` receives what the class has.
    """

    def __init__(self, session: Session, recording: Recording) -> None:
        self._original: Any = torch.Tensor.data
        self._session = session
        self._record = recording.record_detach

    def __get__(self, tensor: torch.Tensor | None, owner: Any = None) -> Any:
        if tensor is None:
            return self._original
        result = self._original.__get__(tensor)
        if isinstance(result, torch.Tensor):
            self._session.guarded("ops", self._record, tensor, result)
        return result

    def __set__(self, tensor: torch.Tensor, value: Any) -> None:
        self._original.__set__(tensor, value)

    def __delete__(self, tensor: torch.Tensor) -> None:
        self._original.__delete__(tensor)  # which raises
