"""Copies between devices, and ops at which the host waits for a device."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from autogradviz.events import DeviceCopied, OpCalled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from autogradviz.analysis.types import Op, SourceLocation, Tensor
    from autogradviz.event_log import Log


Direction: TypeAlias = Literal["to the device", "to the host", "between devices"]
"""The direction of a copy."""

WAITING_OPS: Final = {
    "aten._ctc_loss.Tensor": "reads lengths",
    "aten._ctc_loss.default": "reads lengths",
    "aten._linalg_check_errors.default": "reads a number",
    "aten._local_scalar_dense.default": "reads a number",
    "aten._unique.default": "has a size that depends on values",
    "aten._unique2.default": "has a size that depends on values",
    "aten.allclose.default": "reads a number",
    "aten.bincount.default": "has a size that depends on values",
    "aten.equal.default": "reads a number",
    "aten.index.Tensor": "has a size that depends on values",
    "aten.linalg_lstsq.default": "has a size that depends on values",
    "aten.masked_select.default": "has a size that depends on values",
    "aten.nonzero.default": "has a size that depends on values",
    "aten.repeat_interleave.Tensor": "has a size that depends on values",
    "aten.unique_consecutive.default": "has a size that depends on values",
    "aten.unique_dim.default": "has a size that depends on values",
    "aten.unique_dim_consecutive.default": "has a size that depends on values",
}
"""The operators that read values of a device: those with PyTorch's tags "dynamic_output_shape" and
"data_dependent_output", and the check of results of ``torch.linalg``. Indexing reads only masks.
What C++ copies below all observers is not known: ``torch.tensor(data, device="cuda")``."""

_MASKED: Final = {"aten.index.Tensor", "aten.index_put.default", "aten.index_put_.default"}
_MASKS: Final = {"bool", "uint8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """The copies of one kind that one line made.

    Attributes:
        location: the line, None if it is unknown.
        direction: "to the device", "to the host" or "between devices".
        source: the device that was read: "cpu", "cuda:0".
        target: the device that was written.
        nbytes: bytes of all copies.
        count: number of copies.
        is_pinned: whether the memory of the host was pinned; None between devices, and for numbers.
        is_blocking: whether the host waited for the copies.

    Example:
        >>> trace.transfers()  # on the CPU
        []
    """

    location: SourceLocation | None
    direction: Direction
    source: str
    target: str
    nbytes: int
    count: int
    is_pinned: bool | None
    is_blocking: bool

    def __str__(self) -> str:
        pinned = {True: "pinned", False: "not pinned", None: ""}[self.is_pinned]
        words = [
            f"{self.source} to {self.target}", f"{self.nbytes} bytes in {self.count}", pinned,
            "blocking" if self.is_blocking else "", f"at {self.location or '?'}",
        ]  # fmt: skip
        return ", ".join(word for word in words if word)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWait:
    """The host waited for a device."""

    seq: int
    device: str
    name: str  # of the op, "nonzero"
    reason: str  # "reads a number"
    duration_ns: int  # of the op on the host
    in_call: bool  # it ran in the call of a module, in a backward or in a recomputation
    stack_id: int | None
    location: SourceLocation | None


def build_transfers(
    log: Log, location: Callable[[int | None], SourceLocation | None]
) -> tuple[Transfer, ...]:
    """Return the copies by line, those with the most bytes first."""
    found: dict[tuple[SourceLocation | None, str, str, bool | None, bool], list[int]] = defaultdict(
        list
    )
    for event in log.of(DeviceCopied):
        key = (
            location(event.stack_id), event.source_device, event.target_device,
            event.is_pinned, event.is_blocking,
        )  # fmt: skip
        found[key].append(event.nbytes)
    transfers = [
        Transfer(
            location=line, direction=_direction(source, target), source=source, target=target,
            nbytes=sum(sizes), count=len(sizes), is_pinned=pinned, is_blocking=blocking,
        )
        for (line, source, target, pinned, blocking), sizes in found.items()
    ]  # fmt: skip
    return tuple(sorted(transfers, key=lambda each: -each.nbytes))


def _direction(source: str, target: str) -> Direction:
    if source.startswith("cpu"):
        return "to the device"
    return "to the host" if target.startswith("cpu") else "between devices"


def build_waits(log: Log, ops: Sequence[Op]) -> tuple[DeviceWait, ...]:
    """Return the ops that made the host wait for a device, oldest first."""
    copies = {event.op_seq: event for event in log.of(DeviceCopied) if event.is_blocking}
    called = dict(log.fields(OpCalled, "seq", "call_id"))
    return tuple(_waits(ops, copies, called))


def _waits(
    ops: Sequence[Op], copies: dict[int | None, DeviceCopied], called: dict[int, int | None]
) -> Iterator[DeviceWait]:
    for op in ops:
        copy = copies.get(op.seq)
        reason = WAITING_OPS.get(op.overload, "")
        device = _accelerator((*op.inputs, *op.outputs))
        if op.overload in _MASKED:
            reason = _reason_of_index(op)
        elif copy is not None and not reason:
            reason = f"copies {_direction(copy.source_device, copy.target_device)}"
        if not reason or device is None:
            continue
        yield DeviceWait(
            seq=op.seq,
            device=device,
            name=op.name,
            reason=reason,
            duration_ns=op.duration_ns,
            in_call=called.get(op.seq) is not None or op.phase != "forward",
            stack_id=op.stack_id,
            location=op.location,
        )


def _accelerator(tensors: Sequence[Tensor]) -> str | None:
    """Return the device of the first tensor on an accelerator, None if there is none."""
    found = (each.device for each in tensors)
    return next((each for each in found if each and each.split(":")[0] not in _HOST), None)


_HOST: Final = {"cpu", "meta"}


def _reason_of_index(op: Op) -> str:
    """Return why an op waits that takes indices: one of them is a mask, of which sizes depend."""
    masks = sum(each.dtype in _MASKS for each in op.inputs[1:])
    fills = op.name != "index" and masks == 1 and op.inputs[-1].shape == ()
    return "has a size that depends on values" if masks and not fills else ""
