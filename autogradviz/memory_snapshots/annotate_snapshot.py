"""Annotate a snapshot of PyTorch's allocator with the tensors of a recording."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from autogradviz.analysis.formatting import short_path

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis
from autogradviz.memory_snapshots.owners_of_allocations import Owner, TensorOwners
from autogradviz.memory_snapshots.read_allocations import (
    Allocation,
    Snapshot,
    read_allocations,
    read_snapshot,
)

PREFIX: Final = "autogradviz: "


def annotate_snapshot(
    analysis: Analysis, source: Snapshot | str | os.PathLike[str]
) -> dict[str, Any]:
    """Return a copy of a snapshot in whose history the recording's allocations are annotated.

    The entries are those of ``torch.cuda.memory._annotate_tensor``. Entries of an earlier call, and
    those of ``record(annotate_memory=True)``, are replaced.
    """
    snapshot = read_snapshot(source)
    allocations = read_allocations(snapshot)
    owners = TensorOwners(analysis, snapshot, allocations)
    new: dict[int, list[tuple[Allocation, Owner]]] = defaultdict(list)
    for each in allocations:
        owner = owners.of(each)
        if owner is not None:
            new[each.device].append((each, owner))
    traces = list(snapshot.get("device_traces") or [])
    traces += [[] for _ in range(max(new, default=-1) + 1 - len(traces))]
    return {
        **snapshot,
        "device_traces": [
            list(_annotated(trace, new[device])) for device, trace in enumerate(traces)
        ],
    }


def _annotated(
    trace: list[dict[str, Any]], found: list[tuple[Allocation, Owner]]
) -> Iterator[dict[str, Any]]:
    after: dict[int, list[tuple[Allocation, Owner]]] = defaultdict(list)
    for each, owner in found:
        after[each.first].append((each, owner))
    first = trace[0] if trace else {}
    for each, owner in after[-1]:  # allocated before the history begins
        yield _entry({"stream": 0, "time_us": first.get("time_us", owner.time_us)}, each, owner)
    for index, entry in enumerate(trace):
        if not str(entry.get("user_metadata", "")).startswith(PREFIX):
            yield entry
        for each, owner in after.get(index, ()):
            yield _entry(entry, each, owner)


def _entry(like: dict[str, Any], allocation: Allocation, owner: Owner) -> dict[str, Any]:
    return {
        **like,
        "action": "annotate",
        "addr": allocation.address,
        "size": allocation.nbytes,
        "frames": [],
        "user_metadata": PREFIX + _text(owner),
    }


def _text(owner: Owner) -> str:
    """Return "saved by AddmmBackward0.mat1, h.0.attn, train.py:31", or the name of a parameter."""
    if owner.role != "saved":
        return f"{owner.role} {owner.name}".strip()
    line = f"{short_path(owner.filename).rpartition('/')[2]}:{owner.lineno}"
    parts = (f"saved by {owner.name or 'autograd'}", owner.module, line if owner.filename else "")
    return ", ".join(filter(None, parts))
