"""Held saved tensors whose memory was written since they were saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.events import VersionBumped, VersionRestored

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.analysis.types import SavedTensor
    from autogradviz.event_log import Log


def find_stale(log: Log, saved_tensors: Iterable[SavedTensor]) -> dict[int, VersionBumped]:
    """Return the last write to each held saved tensor that was written since.

    PyTorch refuses to unpack such a tensor, unless the write went through an alias with a version
    counter of its own; then the gradient is wrong. Tensors that saved-tensor hooks packed are left
    out.
    """
    last: dict[int | None, VersionBumped] = {
        event.storage_id: event for event in log.of(VersionBumped)
    }
    for restored in log.of(VersionRestored):
        written = last.get(restored.storage_id)
        if written is not None and restored.seq > written.seq:
            del last[restored.storage_id]
    last.pop(None, None)
    stale = {}
    for saved in saved_tensors:
        write = last.get(saved.tensor.storage_id)
        if write is None or saved.released_seq is not None or saved.packed_by != "pytorch":
            continue
        if saved.cloned or saved.version is None or write.seq < saved.saved_seq:
            continue
        if write.seen_version > saved.version:
            stale[saved.saved_id] = write
    return stale
