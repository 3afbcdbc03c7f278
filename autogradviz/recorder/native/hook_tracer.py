"""Records packs and unpacks of checkpoint's hooks in C++, and those of other hooks in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autogradviz.recorder.saved_tensors.hook_wrappers import WRAPPERS, HookTracer

if TYPE_CHECKING:
    from autogradviz.events import PackedBy
    from autogradviz.recorder.ids.tensor_ids import TensorTable
    from autogradviz.recorder.ops.fingerprints import Fingerprints
    from autogradviz.recorder.saved_tensors.save_registry import SaveTable
    from autogradviz.recorder.session import Session


class NativeHookTracer(HookTracer):
    """Wraps the hooks of checkpoint by objects of C++, which call some of the methods here."""

    def __init__(
        self,
        session: Session,
        tensors: TensorTable,
        saves: SaveTable,
        fingerprints: Fingerprints,
    ) -> None:
        super().__init__(session, tensors, saves, fingerprints)
        WRAPPERS.add(session.native.hook_type)
        recording = session.native.recording
        recording.set_tracer(self, saves.packed_objects)
        self._recording = session.ref(recording)
        self._wrap_checkpoint = recording.wrap_hooks
        self.hash_of = fingerprints.hash_of
        """Return the fingerprint of a tensor, None if it has none."""
        self.discard_dead = saves.discard_dead
        """Forget saves in Python whose packed objects had the address of a new one."""

    def wrap(
        self, pack: Any, unpack: Any, packed_by: PackedBy, region: tuple[int | None, int | None]
    ) -> tuple[Any, Any]:
        """Return wrappers around a pair of hooks that record what the hooks do."""
        if packed_by in {"checkpoint", "recompute"}:
            return self._wrap_checkpoint(self._recording, pack, unpack, packed_by, *region)  # type: ignore[no-any-return]
        return super().wrap(pack, unpack, packed_by, region)

    def attach(self) -> None:
        """Let C++ know this thread."""
        _ = self._local.state

    def fail(self, error: Exception) -> None:
        """Record that recording a pack or an unpack failed."""
        self.session.fail("saved tensors", error)
