"""Records packs and unpacks of checkpoint's hooks in C++, which calls some of the methods here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autogradviz.recorder.saved_tensors.hook_wrappers import WRAPPERS

if TYPE_CHECKING:
    import torch

    from autogradviz.events import PackedBy
    from autogradviz.recorder.engine_interface import ContentHashes, Region
    from autogradviz.recorder.native.extension_types import Extension, Recording
    from autogradviz.recorder.saved_tensors.save_registry import SaveTable
    from autogradviz.recorder.session import Session


class CheckpointHooks:
    """Wraps the hooks of checkpoint by objects of C++."""

    def __init__(
        self,
        session: Session,
        extension: Extension,
        recording: Recording,
        saves: SaveTable,
        contents: ContentHashes,
    ) -> None:
        self._session = session
        self._saves = saves
        self._contents = contents
        WRAPPERS.add(extension.TracingHook)
        recording.set_tracer(self, saves.packed_objects)
        self._recording = session.ref(recording)
        self._wrap = recording.wrap_hooks

    def wrap(self, pack: Any, unpack: Any, packed_by: PackedBy, region: Region) -> tuple[Any, Any]:
        """Return wrappers around a pair of hooks that record what the hooks do."""
        return self._wrap(self._recording, pack, unpack, packed_by, *region)

    # --- what C++ calls ------------------------------------------------------------------------

    def attach(self) -> None:
        """Let C++ know this thread."""
        _ = self._session.threads.local.state

    def hash_of(self, tensor: torch.Tensor) -> int | None:
        """Return the fingerprint of a tensor, None if it has none."""
        return self._contents.hash_of(tensor)

    def discard_dead(self, packed: Any) -> None:
        """Forget saves in Python whose packed objects had the address of a new one."""
        self._saves.discard_dead(packed)

    def fail(self, error: Exception) -> None:
        """Record that recording a pack or an unpack failed."""
        self._session.fail("saved tensors", error)
