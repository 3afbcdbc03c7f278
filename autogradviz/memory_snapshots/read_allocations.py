"""Read a snapshot of PyTorch's allocator: its allocations, in time and by address."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from autogradviz.errors import MemorySnapshotError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator


# ``torch.cuda.memory._snapshot()`` documents the format. ``segments`` holds the memory in use when
# the snapshot was taken, ``device_traces`` what the allocator did before, if
# ``_record_memory_history()`` was called. The history is a ring: its oldest entries may be missing.


Snapshot: TypeAlias = "Mapping[str, Any]"

_FREED = frozenset({"free", "free_completed"})
_IN_USE = frozenset({"active_allocated", "active_awaiting_free", "active_pending_free"})


@dataclass(slots=True, kw_only=True)
class Allocation:
    """One allocation: the memory of one storage, for as long as it was allocated."""

    device: int
    address: int
    nbytes: int  # as requested, before the allocator rounds up
    frames: list[dict[str, Any]]  # innermost first; empty if they were not recorded
    first: int = -1  # index of its entry in the history of the device, -1 if it is older
    end: int | None = None  # that of the entry that freed it, None if it was in use to the end
    first_us: int | None = None  # wall clock
    end_us: int | None = None


class _OnlyPlainData(pickle.Unpickler):
    """Reads numbers, texts and containers; a pickle that names anything else is refused."""

    def find_class(self, module: str, name: str) -> Any:
        message = f"it names {module}.{name}, which a snapshot does not"
        raise pickle.UnpicklingError(message)


def read_snapshot(source: Snapshot | str | os.PathLike[str]) -> Snapshot:
    """Return a snapshot, given by itself or by its file; nothing in the file is executed.

    Raises:
        MemorySnapshotError: if it is not a snapshot.
    """
    snapshot: Any = source
    if not isinstance(source, Mapping):
        try:
            with Path(source).open("rb") as file:
                snapshot = _OnlyPlainData(file).load()
        except OSError:
            raise
        except Exception as error:
            message = f"{source} is not a snapshot of PyTorch's memory: {error}"
            raise MemorySnapshotError(message) from error
    if not isinstance(snapshot, Mapping) or not isinstance(snapshot.get("segments"), list):
        message = "not a snapshot of PyTorch's memory: it has no segments"
        raise MemorySnapshotError(message)
    return snapshot


def read_allocations(snapshot: Snapshot) -> list[Allocation]:
    """Return all allocations that a snapshot shows: those in its history, and older ones."""
    try:
        return list(_read(snapshot))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        message = f"not a snapshot of PyTorch's memory: {type(error).__name__}: {error}"
        raise MemorySnapshotError(message) from error


def _read(snapshot: Snapshot) -> Iterator[Allocation]:
    open_now: dict[tuple[int, int], Allocation] = {}
    for device, trace in enumerate(snapshot.get("device_traces") or ()):
        for index, entry in enumerate(trace):
            action, time_us = entry["action"], entry.get("time_us")
            place = (device, entry.get("addr", 0))
            if action == "alloc":
                before = open_now.pop(place, None)
                if before is not None:  # the entry that freed it is missing
                    before.end, before.end_us = index, time_us
                    yield before
                open_now[place] = Allocation(
                    device=device,
                    address=entry["addr"],
                    nbytes=entry["size"],
                    frames=entry.get("frames") or [],
                    first=index,
                    first_us=time_us,
                )
            elif action in _FREED:
                freed = open_now.pop(place, None) or Allocation(
                    device=device, address=entry["addr"], nbytes=entry["size"], frames=[]
                )
                freed.end, freed.end_us = index, time_us
                yield freed
    for device, address, block in _blocks(snapshot):
        history = block.get("history") or [{}]  # before PyTorch 2.1
        size = block.get("requested_size") or history[0].get("real_size") or block["size"]
        frames = block.get("frames") or history[0].get("frames") or []
        found = open_now.pop((device, address), None)
        yield found or Allocation(device=device, address=address, nbytes=size, frames=frames)
    yield from open_now.values()  # the snapshot was changed by hand, or is of another version


def _blocks(snapshot: Snapshot) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield device, address and description of each block in use."""
    for segment in snapshot["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] in _IN_USE:
                yield segment.get("device", 0), block.get("address", address), block
            address += block["size"]


class AllocationIndex:
    """Finds the allocation at an address at a time."""

    def __init__(self, snapshot: Snapshot, allocations: list[Allocation]) -> None:
        traces = enumerate(snapshot.get("device_traces") or ())
        self._begins = {device: trace[0].get("time_us") for device, trace in traces if trace}
        self._by_address: dict[int, list[Allocation]] = {}
        for each in sorted(allocations, key=lambda each: each.first):
            self._by_address.setdefault(each.address, []).append(each)

    def find(self, address: int, time_us: int, nbytes: int, *, is_alive: bool) -> Allocation | None:
        """Return the allocation that begins at an address and was in use at a time.

        Where the history does not reach back to that time, another tensor may have had the address
        since: then the size must be that of the storage, and the storage still be alive.

        Args:
            address: of the first byte.
            time_us: on the wall clock.
            nbytes: of the storage.
            is_alive: nothing has freed the storage before the snapshot, as far as is known.
        """
        for each in self._by_address.get(address, ()):
            begin = each.first_us if each.first >= 0 else self._begins.get(each.device)
            if begin is not None and begin <= time_us and (each.end is None or each.end_us):
                if each.end_us is None or time_us <= each.end_us:
                    return each
            elif each.first < 0 and is_alive and each.end is None and each.nbytes == nbytes:
                return each
        return None
