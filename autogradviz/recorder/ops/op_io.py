"""What an operator takes and gives: numbers, versions and contents of its tensors.

Most take one plain tensor and give one; ``ops.py`` looks at those by itself, without a loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch

from autogradviz.events import NO_ID
from autogradviz.recorder.ids.tensors import PLAIN_TENSORS, version_of
from autogradviz.recorder.ops.fingerprints import fingerprint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from autogradviz.recorder.ids.versions import Written
    from autogradviz.recorder.ops.schemas import Signature
    from autogradviz.recorder.recorder import Recorder

Numbers: TypeAlias = tuple[int, ...]

_NoFunctions: Final = torch._C.DisableTorchFunction  # noqa: SLF001
_Tensor: Final = torch.Tensor


def _tensors(value: Any) -> Sequence[torch.Tensor]:
    """Return a tensor, or those in a list or tuple; none of anything else."""
    if isinstance(value, _Tensor):
        return (value,)
    if isinstance(value, (list, tuple)):
        return [item for item in value if isinstance(item, _Tensor)]
    return ()


Looked: TypeAlias = tuple[bool, Numbers, Numbers, "Sequence[Written]", Numbers]
"""What an op takes.

Whether any of it requires a gradient, numbers and versions, what is written, and fingerprints.
"""


def look(
    recorder: Recorder,
    signature: Signature,
    args: Any,
    kwargs: Any,
    fresh: bool,  # noqa: FBT001 - where keywords must be named, Python calls in its slow way
    plain: bool,  # noqa: FBT001
) -> Looked | None:
    """Look at what an op takes.

    Args:
        recorder: who records.
        signature: of the op.
        args: what it was called with.
        kwargs: by keyword.
        fresh: find out whether any of it requires a gradient.
        plain: nobody overrides functions of plain tensors, and no contents are read.

    Returns:
        None where all should be plain tensors, and one is not.
    """
    number, storage_of = recorder.tensors.number, recorder.tensors.storage_of
    with_fingerprints = recorder.with_fingerprints
    known = recorder.versions.known
    ids, versions, hashes = [], [], []
    written: list[Written] | None = None
    requires_grad = False
    given = len(args)
    for position, keyword, writes in signature.places:
        value = args[position] if position < given else kwargs.get(keyword)
        if value is None:
            continue
        for tensor in (value,) if type(value) is _Tensor else _tensors(value):
            if plain and type(tensor) is not _Tensor and type(tensor) not in PLAIN_TENSORS:
                return None
            tensor_id = number(tensor)
            try:
                version = tensor._version  # noqa: SLF001 - has no public name
            except RuntimeError:  # inference mode
                version = NO_ID
            ids.append(tensor_id)
            versions.append(version)
            if fresh and tensor.requires_grad:
                requires_grad, fresh = True, False
            storage_id = storage_of[tensor_id]
            if storage_id >= len(known) or known[storage_id] != version:
                recorder.versions.seen(tensor_id, storage_id, version)
            if with_fingerprints:
                hashes.append(fingerprint(recorder, tensor))
            if writes:
                written = written or []
                written.append((tensor_id, tensor, version))
    return requires_grad, tuple(ids), tuple(versions), written or (), tuple(hashes)


def read_inputs_no_override(
    recorder: Recorder,
    signature: Signature,
    args: Any,
    kwargs: Any,
    fresh: bool,  # noqa: FBT001
) -> Looked:
    """Look at what an op takes with function overrides switched off, contents too."""
    with _NoFunctions():
        found = look(recorder, signature, args, kwargs, fresh, plain=False)
    assert found is not None
    return found


def read_outputs(
    recorder: Recorder, signature: Signature, result: Any, written: Sequence[Written]
) -> tuple[Numbers, Numbers, Numbers]:
    """Look at what an op gave, after it wrote what is ``written``.

    Returns:
        Numbers, versions as they will be when the op is over, and fingerprints.
    """
    number, with_fingerprints = recorder.tensors.number, recorder.with_fingerprints
    raised = {}
    if written and signature.bumps_later:
        raised = {tensor_id: before + 1 for tensor_id, _, before in written if before != NO_ID}
    ids, versions, hashes = [], [], []
    with _NoFunctions():
        for tensor in _tensors(result):
            tensor_id = number(tensor)
            ids.append(tensor_id)
            versions.append(raised[tensor_id] if tensor_id in raised else version_of(tensor))
            if with_fingerprints:
                hashes.append(fingerprint(recorder, tensor))
    return tuple(ids), tuple(versions), tuple(hashes)
