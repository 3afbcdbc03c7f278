"""Writes to a tensor between two readings of the state of a checkpointed region."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import state_texts

if TYPE_CHECKING:
    from autogradviz.analysis.analysis import Analysis
    from autogradviz.analysis.types import Op
    from autogradviz.events import StateChanged


def texts_of_change(analysis: Analysis, change: StateChanged) -> tuple[str, str]:
    """Return the state in the forward and in the recomputation, in words.

    ``load[i] += 1`` adds in place, and then stores the result into itself: that is one write.
    """
    return state_texts(change.before, change.after, _stored_into_itself(analysis, change))


def _stored_into_itself(analysis: Analysis, change: StateChanged) -> int:
    """Return the number of writes between two readings that copied a tensor to itself.

    The memory of the state is the one whose versions in the region's forward are its own. 0 if
    none is, and if several with other writes are.
    """
    if change.change_kind != "version" or None in {change.version, change.seen_version}:
        return 0
    region = next((r for r in analysis.regions if r.region_id == change.region_id), None)
    writes: dict[int | None, list[Op]] = defaultdict(list)
    for op in region.ops if region is not None else ():
        for storage_id in {tensor.storage_id for tensor in op.written}:
            writes[storage_id].append(op)
    versions = range(change.version or 0, change.seen_version or 0)
    counts = {
        sum(op.name == "copy_" and op.inputs[:1] == op.inputs[1:2] for op in ops)
        for storage_id, ops in writes.items()
        if [_version(op, storage_id) for op in ops] == list(versions)
    }
    return counts.pop() if len(counts) == 1 else 0


def _version(op: Op, storage_id: int | None) -> int | None:
    """Return the version at which an op found a storage that it wrote."""
    found = zip(op.inputs, op.input_versions, strict=False)
    return next((version for tensor, version in found if tensor.storage_id == storage_id), None)
