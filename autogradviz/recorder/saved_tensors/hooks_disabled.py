"""Contexts that change what autograd does: saved-tensor hooks switched off."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from autogradviz.events import HooksDisabled
from autogradviz.recorder.torch_internals.dynamo import transparent
from autogradviz.recorder.torch_internals.patch import patched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.recorder.recorder import Recorder


@contextmanager
def observe_disabling(recorder: Recorder) -> Iterator[None]:
    """Record who switches saved-tensor hooks off, while the context is open."""
    owner = torch._C._autograd  # noqa: SLF001
    original = owner._saved_tensors_hooks_disable  # noqa: SLF001

    @transparent
    def disable(message: str, *rest: Any) -> Any:
        result = original(message, *rest)
        recorder.guarded("saved tensors", _emit, recorder, message)
        return result

    with patched(owner, _saved_tensors_hooks_disable=disable):
        yield


def _emit(recorder: Recorder, message: str) -> None:
    stack_id = recorder.stacks.capture(3) if recorder.with_stacks else None
    recorder.emit(HooksDisabled, str(message), stack_id=stack_id)
