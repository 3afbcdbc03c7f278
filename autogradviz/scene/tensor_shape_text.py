"""The shape of a tensor in words, for a ``DTensor`` with what this rank holds of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.analysis.formatting import format_shape

if TYPE_CHECKING:
    from autogradviz.analysis import Analysis
    from autogradviz.analysis.types import Tensor


def tensor_shape_text(analysis: Analysis, tensor: Tensor) -> str:
    """Return "4×12", or "16×8, local 8×8, Shard(dim=0) on tp=2" for a ``DTensor``.

    The local shape is that of the part on this rank. For each dimension of the device mesh follow
    the placement, and its name and size.
    """
    shape = format_shape(tensor.shape)
    seen = analysis.distributed_tensors.get(tensor.tensor_id)
    if seen is None:
        return shape
    parts = [shape, f"local {format_shape(analysis.tensors[seen.local_tensor_id].shape)}"]
    for dim, (placement, size) in enumerate(zip(seen.placements, seen.mesh_shape, strict=False)):
        name = seen.mesh_names[dim] if dim < len(seen.mesh_names) else f"mesh dim {dim}"
        parts.append(f"{placement} on {name}={size}")
    return ", ".join(parts)
