"""Snapshots of PyTorch's memory, reconciled with a recording."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from autogradviz.analysis.formatting import format_bytes, short_path
from autogradviz.errors import MemorySnapshotError
from autogradviz.event_log.saved_tensor_lifetimes import alive_at_peak
from autogradviz.events import ParameterSeen, StorageAddressSeen
from autogradviz.support.source_lines_and_libraries import is_library_anywhere

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from autogradviz.analysis import Analysis, SavedTensor
    from autogradviz.analysis.saved_memory import CountedStorage


# --- the allocations in a snapshot of PyTorch's CUDA allocator, and their lifetimes ---------------
#
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


# --- the tensors of a recording to which the allocations in a snapshot belong ---------------------
#
# The recorder notes the address of each saved tensor, parameter and gradient, with the time of the
# wall clock, at which the tensor was alive. The allocator's entries have the same clock. So the
# allocation at that address and time is that of the tensor, also if the address was used again.


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The tensor of a recording to which one allocation belongs."""

    role: str  # "saved", "parameter" or "gradient"
    module: str
    filename: str  # "" if unknown
    lineno: int
    name: str  # of a parameter, or slots: "AddmmBackward0.mat1"
    nbytes: int  # of the storage
    storage_id: int | None
    time_us: int  # when it was seen
    is_alive: bool  # nothing has freed it before the recording ended, as far as is known


class TensorOwners:
    """The allocations of the tensors of one recording."""

    def __init__(
        self, analysis: Analysis, snapshot: Snapshot, allocations: list[Allocation]
    ) -> None:
        """Match the tensors of a recording with the allocations in a snapshot.

        Raises:
            MemorySnapshotError: the recording has no addresses.
        """
        if not analysis.log.of(StorageAddressSeen):
            message = "the recording has no addresses: use record(annotate_memory=True)"
            raise MemorySnapshotError(message)
        self._analysis = analysis
        self._saves: dict[int | None, list[SavedTensor]] = defaultdict(list)
        for each in sorted(analysis.saved.values(), key=lambda save: save.saved_seq):
            if each.is_held_in_place:
                self._saves[each.tensor.storage_id].append(each)
        self._packed_at: dict[tuple[int | None, int | None], int | None] = {
            (each.region_id, each.position): each.node_id
            for each in analysis.saved.values()
            if each.recompute_id is None and each.region_id is not None
        }
        self._counted: dict[int | None, CountedStorage] = {
            each.storage_id: each for each in analysis.saved_memory.storages
        }
        self._parameters = {
            event.tensor_id: event.parameter_name for event in analysis.log.of(ParameterSeen)
        }
        index = AllocationIndex(snapshot, allocations)
        self.missing: list[Owner] = []
        """Tensors on a device of the snapshot to which no allocation belongs."""
        self._of: dict[int, Owner] = {}
        for address, owner, on_host in self._owners():
            found = index.find(address, owner.time_us, owner.nbytes, is_alive=owner.is_alive)
            if found is None:
                if not on_host:
                    self.missing.append(owner)
                continue
            known = self._of.get(id(found))
            if known is None or _RANKS[owner.role] < _RANKS[known.role]:
                self._of[id(found)] = owner

    def of(self, allocation: Allocation) -> Owner | None:
        """Return the owner of an allocation, None if the recording does not know it."""
        return self._of.get(id(allocation))

    def _owners(self) -> Iterator[tuple[int, Owner, bool]]:
        for event in self._analysis.log.of(StorageAddressSeen):
            tensor = self._analysis.tensors[event.tensor_id]
            name = self._parameters.get(event.tensor_id, "")
            role, storage_id = event.role, tensor.storage_id
            counted = self._counted.get(storage_id) if role == "saved" else None
            if role == "saved" and counted is None:
                if not name:
                    continue  # hooks keep a copy of it instead
                role = "parameter"
            yield (
                event.address,
                Owner(
                    role=role,
                    module=counted.module if counted else name.rpartition(".")[0],
                    filename=counted.filename if counted else "",
                    lineno=counted.lineno if counted else 0,
                    name=self._slots(storage_id) if counted else name,
                    nbytes=counted.nbytes if counted else tensor.storage_nbytes,
                    storage_id=storage_id if role != "gradient" else None,
                    time_us=event.wall_ns // 1000,
                    is_alive=not (counted and counted.released),
                ),
                tensor.device == "cpu",
            )

    def _slots(self, storage_id: int | None) -> str:
        """Return the slots that keep a storage, "AddmmBackward0.mat1, MulBackward0.self"."""
        nodes = self._analysis.graph.nodes
        names: dict[str, None] = {}
        for each in self._saves[storage_id]:
            node_id = each.node_id
            if node_id is None:  # nodes of a recomputation are not recorded: that of the forward
                node_id = self._packed_at.get((each.region_id, each.position))
            node = None if node_id is None else nodes.get(node_id)
            if each.is_argument:
                names["argument of a checkpoint region"] = None
            elif node is not None and each.slot:
                names[f"{node.name}.{each.slot}"] = None
        return ", ".join(names)


_RANKS = {"parameter": 0, "gradient": 1, "saved": 2}


# --- annotations of a recording in a snapshot of PyTorch's CUDA allocator, for memory_viz ---------


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


# --- the bytes of PyTorch's CUDA allocator beside those that a recording explains -----------------


Moment: TypeAlias = Literal["peak", "end"]

_ROLES: Final = ("saved", "parameter", "gradient", "")
_SHOWN: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """Allocations of one kind, module and line.

    Attributes:
        role: "saved", "parameter" or "gradient"; "" if the recording does not know the tensors.
        module: qualified name, "" for none.
        line: "/src/train.py:31": the line that saved the tensors; with role "" the line that
            allocated them; "" if it is unknown.
        slots: the nodes and slots that keep the tensors, "AddmmBackward0.mat1".
        allocations: their number.
        allocated: bytes that were requested from the allocator.
        recorded: bytes of their storages in the recording.

    Example:
        >>> row = autogradviz.MemoryRow(
        ...     role="saved", module="up", line="net.py:9", slots="TanhBackward0.result",
        ...     allocations=1, allocated=512, recorded=512)
        >>> row.allocated == row.recorded
        True
    """

    role: str
    module: str
    line: str
    slots: str
    allocations: int
    allocated: int
    recorded: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReconciliation:
    """The memory of one device at one moment, by what a recording says about it.

    Attributes:
        moment: "peak", the moment of the history at which most was allocated, or "end", when the
            snapshot was taken.
        device: number of the device.
        rows: the largest first. The sum of ``allocated`` is the memory that was in use.
        missing: tensors of the recording that are on an accelerator and not in the snapshot:
            their number.
        missing_bytes: the bytes of their storages.

    Example:
        >>> empty = autogradviz.MemoryReconciliation(
        ...     moment="end", device=0, rows=(), missing=0, missing_bytes=0)
        >>> empty.allocated, empty.unexplained
        (0, 0)
    """

    moment: Moment
    device: int
    rows: tuple[MemoryRow, ...]
    missing: int
    missing_bytes: int

    @property
    def allocated(self) -> int:
        """All bytes that were in use, as requested from the allocator."""
        return sum(row.allocated for row in self.rows)

    @property
    def unexplained(self) -> int:
        """The bytes in use that belong to no tensor of the recording."""
        return sum(row.allocated for row in self.rows if not row.role)

    def __str__(self) -> str:
        when = "at the peak" if self.moment == "peak" else "when the snapshot was taken"
        lines = [f"{format_bytes(self.allocated)} allocated on device {self.device} {when}"]
        for role in _ROLES:
            rows = [row for row in self.rows if row.role == role]
            if rows:
                title = {"": "not in the recording", "saved": "saved for backward"}.get(role)
                total = sum(row.allocated for row in rows)
                lines += ["", f"{format_bytes(total):>7}  {title or f'{role}s'}"]
                lines += [_row_text(row) for row in rows[:_SHOWN]]
                if len(rows) > _SHOWN:
                    rest = sum(row.allocated for row in rows[_SHOWN:])
                    lines.append(f"{format_bytes(rest):>9}  {len(rows) - _SHOWN} more")
        if self.missing:
            size = format_bytes(self.missing_bytes)
            lines += ["", f"{self.missing} recorded tensors ({size}) are not in the snapshot"]
        return "\n".join(lines)

    __repr__ = __str__


def _row_text(row: MemoryRow) -> str:
    place, _, lineno = row.line.rpartition(":")
    line = f"{short_path(place)}:{lineno}" if row.line else "line unknown"
    if row.role in {"parameter", "gradient"}:
        line = ""
    differs = row.recorded != row.allocated and row.role
    size = f"recorded as {format_bytes(row.recorded)}" if differs else ""
    parts = filter(None, (row.module, line, row.slots, size))
    return f"{format_bytes(row.allocated):>9}  {', '.join(parts)}"


def reconcile_snapshot(
    analysis: Analysis, source: Snapshot | str | os.PathLike[str], *, moment: Moment = "peak"
) -> MemoryReconciliation:
    """Return the memory in use in a snapshot, explained by a recording.

    Args:
        analysis: of the recording.
        source: a snapshot, or its file.
        moment: "peak" or "end".
    """
    if moment not in {"peak", "end"}:
        message = f"moment must be 'peak' or 'end', not {moment!r}"
        raise ValueError(message)
    snapshot = read_snapshot(source)
    allocations = read_allocations(snapshot)
    owners = TensorOwners(analysis, snapshot, allocations)
    device, in_use = _fullest_device(allocations, moment)
    groups: dict[tuple[str, str, str], list[tuple[Allocation, int, str]]] = defaultdict(list)
    for each in in_use:
        owner = owners.of(each)
        if owner is None:
            groups["", "", _user_line(each.frames)].append((each, 0, ""))
        else:
            line = f"{owner.filename}:{owner.lineno}" if owner.filename else ""
            slots = owner.name if owner.role == "saved" else ""
            groups[owner.role, owner.module, line].append((each, owner.nbytes, slots))
    rows = [
        MemoryRow(
            role=role,
            module=module,
            line=line,
            slots=", ".join(dict.fromkeys(slots for _, _, slots in found if slots)),
            allocations=len(found),
            allocated=sum(each.nbytes for each, _, _ in found),
            recorded=sum(nbytes for _, nbytes, _ in found),
        )
        for (role, module, line), found in groups.items()
    ]
    missing = {(each.storage_id, each.name): each.nbytes for each in owners.missing}
    return MemoryReconciliation(
        moment=moment,
        device=device,
        rows=tuple(sorted(rows, key=lambda row: (-row.allocated, row.module, row.line))),
        missing=len(missing),
        missing_bytes=sum(missing.values()),
    )


def _fullest_device(allocations: list[Allocation], moment: Moment) -> tuple[int, list[Allocation]]:
    """Return the device on which most is in use at a moment, and what is."""
    devices: dict[int, list[Allocation]] = defaultdict(list)
    for each in allocations:
        devices[each.device].append(each)
    in_use = {
        device: [each for each in found if each.end is None] if moment == "end" else _at_peak(found)
        for device, found in devices.items()
    }
    sizes = {device: sum(each.nbytes for each in found) for device, found in in_use.items()}
    device = max(sizes, key=lambda device: (sizes[device], -device), default=0)
    return device, in_use.get(device, [])


def _at_peak(allocations: list[Allocation]) -> list[Allocation]:
    """Return the allocations of a device that are in use when their sum is highest."""
    spans = [(each.first, each.end, each.nbytes) for each in allocations]
    return [allocations[place] for place in alive_at_peak(spans)]


def _user_line(frames: list[dict[str, Any]]) -> str:
    """Return the innermost line outside of PyTorch and the recorder, "" if there is none."""
    for frame in frames:
        filename = str(frame.get("filename", ""))
        is_python = filename.endswith(".py") or filename.startswith("<ipython")
        if is_python and not is_library_anywhere(filename):
            return f"{filename}:{frame.get('line', 0)}"
    return ""
