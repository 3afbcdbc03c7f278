"""The tensor arguments that a checkpointed region keeps instead of its activations."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from autogradviz.events import NO_ID
from autogradviz.recorder.torch_internals.checkpoint_frame import saved_arguments
from autogradviz.recorder.torch_internals.plain_tensors_and_versions import version_of
from autogradviz.recorder.torch_internals.private_api import DisableTorchFunction
from autogradviz.support.defer_signals import callback_of_weakref

if TYPE_CHECKING:
    from autogradviz.recorder.saved_tensors.save_registry import SaveTable
    from autogradviz.recorder.session import Session, SessionRef


class ArgumentTable:
    """Records the arguments that checkpoint frames hold, and their release."""

    def __init__(self, session: Session, saves: SaveTable) -> None:
        self._session = session
        self._saves = saves
        self._frames: dict[int, weakref.ref[Any]] = {}  # by the first of their saves
        self._ref = session.ref(self)

    def add(self, frame: Any, region: tuple[int | None, int | None], stack_id: int | None) -> None:
        """Record the tensors that a frame keeps for its recomputation."""
        with DisableTorchFunction():
            saved_ids = self._save(frame, region, stack_id)
        if saved_ids:
            released = callback_of_weakref(partial(_on_frame_freed, self._ref, saved_ids))
            self._frames[saved_ids[0]] = weakref.ref(frame, released)

    def _save(
        self, frame: Any, region: tuple[int | None, int | None], stack_id: int | None
    ) -> list[int]:
        saved_ids = []
        for index, tensor in saved_arguments(frame):
            version = version_of(tensor)
            saved_id = self._saves.new(
                tensor,
                packed_by="checkpoint",
                slot=f"args[{index}]",
                version=None if version == NO_ID else version,
                region=region,
                stack_id=stack_id,
            )
            saved_ids.append(saved_id)
        return saved_ids

    def on_frame_freed(self, saved_ids: list[int]) -> None:
        """Record that a frame died with its arguments."""
        self._session.always_guarded("release", self._release, saved_ids)

    def _release(self, saved_ids: list[int]) -> None:
        self._frames.pop(saved_ids[0], None)
        thread = self._session.threads.local.state.number
        for saved_id in saved_ids:
            self._saves.released(saved_id, thread)


def _on_frame_freed(table: SessionRef[ArgumentTable], saved_ids: list[int]) -> None:
    """Record that a frame has died, which may be after the recording."""
    if table.target is not None:
        table.target.on_frame_freed(saved_ids)
