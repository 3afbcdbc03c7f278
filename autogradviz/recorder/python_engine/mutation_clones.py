"""Clones that ``allow_mutation_on_saved_tensors`` makes before a write."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import torch.autograd.graph

from autogradviz.events import MutationCloned

if TYPE_CHECKING:
    from types import FrameType

    from autogradviz.recorder.python_engine.tensor_ids import TensorTable
    from autogradviz.recorder.session import Session

_GRAPH_FILE: Final = torch.autograd.graph.__file__
_DEPTH: Final = 12  # frames between the clone and the mode that makes it


def emit_clone(
    session: Session,
    tensors: TensorTable,
    source: int,
    outputs: tuple[int, ...],
    seq: int,
    thread: int,
    stack_id: int | None,
) -> None:
    """Record that an op which cloned a tensor did so for a write, if it did.

    Args:
        session: of the recording.
        tensors: of the recording.
        source: id of the cloned tensor.
        outputs: ids of the op's results.
        seq: of the op's ``OpCalled``.
        thread: of the op.
        stack_id: of the op.
    """
    # allow_mutation_on_saved_tensors clones in a function of its own, called by its mode.
    frame: FrameType | None = sys._getframe(3)  # noqa: SLF001 - the documented way
    for _ in range(_DEPTH):
        if frame is None:
            return
        code = frame.f_code
        if code.co_name == "maybe_clone" and code.co_filename == _GRAPH_FILE:
            break
        frame = frame.f_back
    else:
        return
    storage_id = tensors.storage_id(source)
    session.emit(
        MutationCloned, source, storage_id, outputs[0], seq, stack_id=stack_id, thread=thread
    )
