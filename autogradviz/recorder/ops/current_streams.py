"""The stream of an accelerator on which an op or a node runs, if it is not the default one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from autogradviz.events import StreamUsed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autogradviz.recorder.session import Session


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
