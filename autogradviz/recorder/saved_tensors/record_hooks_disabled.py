"""Saved-tensor hooks that were disabled, as ``torch.func`` transforms do."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from autogradviz.events import HooksDisabled
from autogradviz.recorder.torch_internals.keep_dynamo_out import skip_frame
from autogradviz.recorder.torch_internals.patch_functions import patched
from autogradviz.recorder.torch_internals.private_api import AUTOGRAD_C, current

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.recorder.session import Session


@contextmanager
def observe_disabled_hooks(session: Session) -> Iterator[None]:
    """Record calls that disable saved-tensor hooks, while the context is open."""
    original = current("_C._autograd._saved_tensors_hooks_disable")

    def record(message: str) -> None:
        session.emit(HooksDisabled, str(message), stack_id=session.stack_id())

    @skip_frame
    def disable(message: str, *rest: Any) -> Any:
        result = original(message, *rest)
        session.guarded("saved tensors", record, message)
        return result

    with patched(AUTOGRAD_C, _saved_tensors_hooks_disable=disable):
        yield
