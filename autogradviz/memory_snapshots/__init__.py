"""Snapshots of PyTorch's CUDA allocator, read beside a recording."""

from autogradviz.memory_snapshots.annotate_snapshot import annotate_snapshot
from autogradviz.memory_snapshots.reconcile_with_recording import (
    MemoryReconciliation,
    MemoryRow,
    reconcile_snapshot,
)

__all__ = ["MemoryReconciliation", "MemoryRow", "annotate_snapshot", "reconcile_snapshot"]
