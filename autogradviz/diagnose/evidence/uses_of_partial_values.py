"""The local parts of ``Partial`` tensors, and the ops that use them as whole values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.events import (
    CollectiveCalled,
    DistributedTensorSeen,
    GradAccumulated,
    PlacementsChanged,
    ProcessGroupSeen,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.analysis import Op
    from autogradviz.diagnose.evidence.evidence import Evidence


# The local parts of ``DTensor`` objects, and what was computed from them before a reduction.


_LIBRARY: Final = "torch/distributed/tensor/"
_LINEAR_NAMES: Final = """
view _unsafe_view reshape view_as as_strided t transpose permute expand squeeze unsqueeze select
slice split split_with_sizes chunk narrow unbind unfold clone detach alias contiguous _to_copy to
copy_ lift_fresh cat stack roll flip index index_select gather constant_pad_nd masked_fill sum mean
cumsum neg add add_ sub sub_ rsub mul mul_ div div_ _foreach_mul_ _foreach_div_ mm bmm addmm dot mv
embedding
"""
_LINEAR: Final = frozenset(_LINEAR_NAMES.split())
"""Ops for which the sum over ranks of their results is the result of the sum; additions of other
values are let through."""
_PRODUCTS: Final = frozenset({"mul", "mul_", "mm", "bmm", "dot", "mv"})
_NO_VALUE_NAMES: Final = """
zeros_like ones_like empty_like new_empty new_zeros item _local_scalar_dense
"""
_NO_VALUE: Final = frozenset(_NO_VALUE_NAMES.split())
"""Ops of whose results nothing more is known."""


def is_of_dtensor(evidence: Evidence, op: Op) -> bool:
    """Return whether an op ran inside ``torch.distributed.tensor``."""
    stack = evidence.analysis.stack(op.stack_id)
    return any(_LIBRARY in place.filename.replace("\\", "/") for place in stack[:12])


def first_nonlinear_use(evidence: Evidence, tensor_id: int, seq: int) -> Op | None:
    """Return the first op whose result needs the whole value, before a reduction; else None.

    Args:
        evidence: the recording.
        tensor_id: a local part, which is a term of a sum over ranks.
        seq: the event from which on it is one.
    """
    parameters = local_parameters(evidence)
    for op, taken in uses(evidence, {tensor_id}, seq):
        if is_of_dtensor(evidence, op):
            continue
        if any(each.tensor_id in parameters for each in op.written):
            return op
        if op.name not in _LINEAR | _NO_VALUE or (op.name in _PRODUCTS and taken > 1):
            return op
    return None


def is_reduced(evidence: Evidence, tensor_ids: set[int], seq: int, ranks: tuple[int, ...]) -> bool:
    """Return whether a collective took one of some tensors, or what was computed from them.

    Args:
        evidence: the recording.
        tensor_ids: the tensors.
        seq: the event after which collectives count.
        ranks: those that have to take part.
    """
    values = set(tensor_ids)
    for _ in uses(evidence, values, seq, ranks):
        pass
    return not values


def uses(
    evidence: Evidence, values: set[int], seq: int, ranks: tuple[int, ...] = ()
) -> Iterator[tuple[Op, int]]:
    """Yield the ops that take local values, with the number of arguments that are such.

    Args:
        evidence: the recording.
        values: the tensors; results are added, and the set is cleared at the first collective.
        seq: the event after which ops count.
        ranks: those that have to take part in a collective.
    """
    log = evidence.analysis.log
    groups = {e.group_name: e.group_ranks for e in log.of(ProcessGroupSeen)}
    wrapped = {e.tensor_id for e in log.of(DistributedTensorSeen)}
    calls = iter(
        [
            event
            for event in log.of(CollectiveCalled)
            if event.seq > seq and set(ranks) <= set(groups.get(event.group_name, ranks))
        ]
    )
    call = next(calls, None)
    for op in evidence.analysis.ops:
        if op.seq <= seq or op.phase == "backward":
            continue
        while call is not None and call.seq < op.seq:
            if values.intersection(call.tensor_ids):
                values.clear()
                return
            call = next(calls, None)
        taken = [each.tensor_id for each in op.inputs if each.tensor_id in values]
        if not taken or wrapped.intersection(each.tensor_id for each in op.inputs):
            continue
        yield op, len(taken)
        if op.name not in _NO_VALUE:
            values.update(each.tensor_id for each in op.outputs if each.tensor_id not in wrapped)
    if call is not None and values.intersection(call.tensor_ids):
        values.clear()


def local_parameters(evidence: Evidence) -> frozenset[int]:
    """Return the parameters, and the local parts of those that are divided among ranks."""
    log = evidence.analysis.log
    leaves = set(evidence.analysis.parameters) | {e.tensor_id for e in log.of(GradAccumulated)}
    parts = {e.local_tensor_id for e in log.of(DistributedTensorSeen) if e.tensor_id in leaves}
    return frozenset(leaves | parts)


def partial_parts(evidence: Evidence) -> dict[int, DistributedTensorSeen]:
    """Return the local parts that are terms of a sum over ranks, which PyTorch made, by id."""
    log = evidence.analysis.log
    given = {e.tensor_id for e in log.of(PlacementsChanged) if e.conversion == "from_local"}
    return {
        event.local_tensor_id: event
        for event in log.of(DistributedTensorSeen)
        if event.local_tensor_id not in given
        and any(
            placement.startswith("Partial") and size > 1
            for placement, size in zip(event.placements, event.mesh_shape, strict=False)
        )
    }
