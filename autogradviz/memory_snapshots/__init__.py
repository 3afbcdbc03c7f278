"""Snapshots of PyTorch's CUDA allocator, read beside a recording."""

from autogradviz.memory_snapshots.reconcile_with_recording import (
    MemoryReconciliation,
    MemoryRow,
    annotate_snapshot,
    reconcile_snapshot,
)

__all__ = ["MemoryReconciliation", "MemoryRow", "annotate_snapshot", "reconcile_snapshot"]
