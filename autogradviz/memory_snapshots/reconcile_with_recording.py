"""The memory in a snapshot of PyTorch's allocator, reconciled with a recording."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from autogradviz.analysis.formatting import format_bytes, short_path
from autogradviz.event_log.saved_tensor_lifetimes import alive_at_peak
from autogradviz.memory_snapshots.owners_of_allocations import TensorOwners
from autogradviz.memory_snapshots.read_allocations import (
    Allocation,
    Snapshot,
    read_allocations,
    read_snapshot,
)
from autogradviz.support.source_lines_and_libraries import is_library_anywhere

if TYPE_CHECKING:
    import os

    from autogradviz.analysis import Analysis


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
