"""Copies between devices, and the streams that are current."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from autogradviz.events import DeviceCopied, StreamUsed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from autogradviz.recorder.session import Session


# --- the stream of an accelerator on which an op or a node runs, if it is not the default one -----


def emit_stream(
    session: Session, tensors: Iterable[Any], op_seq: int | None = None, *,
    run: tuple[int, int] | None = None, stack_id: int | None = None,
) -> None:  # fmt: skip
    """Record the current stream of the first tensor on an accelerator, unless it is the default.

    Args:
        session: of the recording.
        tensors: of the op or node, and other values.
        op_seq: event of the op.
        run: the backward and the node that it runs.
        stack_id: of the op.
    """
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            continue
        device = tensor.device
        if device.type in {"cpu", "meta"}:
            continue
        stream = torch.accelerator.current_stream(device)
        if stream.stream_id:
            session.emit(
                StreamUsed, str(stream.device), stream.stream_id, op_seq, *(run or (None, None)),
                stack_id=stack_id,
            )  # fmt: skip
        return


# --- copies of tensors between devices, and numbers of a device that the program reads ------------


_SOURCES: Final = {
    "aten.copy_.default": 1,
    "aten._copy_from.default": 0,
    "aten._copy_from_and_resize.default": 0,
    "aten._to_copy.default": 0,
    "aten._local_scalar_dense.default": 0,
}


class Copy(NamedTuple):
    """The places of the arguments of an operator that copies."""

    source: int
    non_blocking: int | None

    def blocks(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Return whether a call between the host and a device waits for it."""
        at = self.non_blocking
        given = args[at] if at is not None and at < len(args) else kwargs.get("non_blocking", False)
        return not given


def read_copy(name: str, schema: Any) -> Copy | None:
    """Return the places of an operator's arguments, None if it does not copy."""
    if name not in _SOURCES:
        return None
    labels = [argument.name for argument in schema.arguments]
    found = labels.index("non_blocking") if "non_blocking" in labels else None
    return Copy(_SOURCES[name], found)


def emit_copy(
    copy: Copy, session: Session, args: Any, kwargs: Any, row: tuple[Any, ...], result: Any
) -> None:
    """Record that an op copied from one device to another, if it did.

    Args:
        copy: of the operator.
        session: of the recording.
        args: its positional arguments.
        kwargs: its keyword arguments.
        row: of its ``OpCalled``.
        result: of the op.
    """
    source = args[copy.source] if copy.source < len(args) else None
    if not isinstance(source, torch.Tensor):
        return
    to_tensor = isinstance(result, torch.Tensor)
    target = result.device if to_tensor else torch.device("cpu")
    devices = source.device, target
    if devices[0] == devices[1] or "meta" in {each.type for each in devices}:
        return
    nbytes = result.numel() * result.element_size() if to_tensor else source.element_size()
    of_host = source if devices[0].type == "cpu" else result
    between_devices = "cpu" not in {each.type for each in devices}
    pinned = None
    if not between_devices and isinstance(of_host, torch.Tensor):
        pinned = of_host.is_pinned()
    blocks = not between_devices and copy.blocks(args, kwargs)
    seq, _, thread, stack_id, *_ = row
    session.emit(
        DeviceCopied, seq, str(devices[0]), str(target), nbytes, pinned, blocks,
        stack_id=stack_id, thread=thread,
    )  # fmt: skip
