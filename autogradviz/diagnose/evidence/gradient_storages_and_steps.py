"""Gradients of leaves: the memory that they are in, and the steps of optimizers that use them."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from math import prod
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from autogradviz.analysis.causal_graph import ZEROING
from autogradviz.diagnose.evidence.facts import is_view, once_per_recording
from autogradviz.diagnose.evidence.requires_grad_flow import storages
from autogradviz.events import NO_ID, GradAccumulated, NodeStarted, StackSeen

if TYPE_CHECKING:
    from autogradviz.analysis import Op
    from autogradviz.diagnose.evidence.facts import Evidence

_ADDING: Final = frozenset({"add", "add_"})
_CLEARING: Final = ZEROING | {"fill_"}
UNSCALE: Final = "_amp_foreach_non_finite_check_and_unscale_"
"""The op by which a ``GradScaler`` divides gradients by its scale."""

_CLIPPING: Final = "torch/nn/utils/clip_grad.py"
_seq = attrgetter("seq")


@once_per_recording
def accumulations(evidence: Evidence) -> dict[int, list[GradAccumulated]]:
    """Return the gradients that each leaf got, oldest first, by tensor id."""
    found: dict[int, list[GradAccumulated]] = defaultdict(list)
    for event in sorted(evidence.analysis.log.of(GradAccumulated), key=_seq):
        found[event.tensor_id].append(event)
    return found


@once_per_recording
def gradient_storages(evidence: Evidence) -> dict[int, set[int]]:
    """Return the storages that may be in the ``.grad`` of each leaf, by tensor id.

    ``AccumulateGrad`` keeps the gradient that it receives, or a copy that it makes.
    """
    analysis = evidence.analysis
    leaf_of = dict(analysis.log.fields(GradAccumulated, "node_id", "tensor_id"))
    found: dict[int, set[int]] = defaultdict(set)
    for node_id, inputs in analysis.log.fields(NodeStarted, "node_id", "inputs"):
        if node_id in leaf_of:
            found[leaf_of[node_id]] |= storages(
                analysis.tensors[tensor_id] for tensor_id in inputs if tensor_id != NO_ID
            )
    for op in analysis.ops:
        if op.phase == "backward" and op.backward_node_id in leaf_of:
            found[leaf_of[op.backward_node_id]] |= storages(op.outputs)
    return found


@once_per_recording
def gradient_reads(evidence: Evidence) -> dict[int, list[Op]]:
    """Return the forward ops that read each storage of a gradient, oldest first."""
    gradients = {each for memory in gradient_storages(evidence).values() for each in memory}
    found: dict[int, list[Op]] = defaultdict(list)
    for op, keys in zip(evidence.analysis.ops, evidence.causal_graph.inputs_memory, strict=True):
        if not gradients.isdisjoint(keys) and op.phase == "forward":
            for storage_id in gradients.intersection(keys):
                found[storage_id].append(op)
    return found


@once_per_recording
def gradient_adds(evidence: Evidence) -> dict[int, list[Op]]:
    """Return the ops by which the nodes of leaves add to a gradient, oldest first, by node."""
    node_ids = set(evidence.analysis.log.column(GradAccumulated, "node_id"))
    found: dict[int, list[Op]] = defaultdict(list)
    for op in evidence.analysis.ops:
        node_id = op.backward_node_id
        if op.name in _ADDING and node_id is not None and node_id in node_ids:
            found[node_id].append(op)
    return found


def between(events: list[GradAccumulated], after: int, before: int) -> list[GradAccumulated]:
    """Return the events between two event numbers."""
    first = bisect_left(events, after, key=_seq)
    return events[first : bisect_left(events, before, lo=first, key=_seq)]


@once_per_recording
def clipping_stacks(evidence: Evidence) -> set[int]:
    """Return the stacks of ops that PyTorch's functions for clipping gradients call themselves."""
    return {
        each
        for each in evidence.analysis.log.column(StackSeen, "stack_id")
        if evidence.analysis.calling_file(each).endswith(_CLIPPING)
    }


def gradients_in_use(evidence: Evidence, gradients: set[int]) -> set[int]:
    """Return the storages of gradients that are used for something.

    Norms and other single numbers, clipping, clearing and exchanges with other ranks do not count.
    """
    reads = gradient_reads(evidence)
    return {
        storage_id
        for storage_id in gradients & reads.keys()
        if any(not evidence.in_optimizer(op) and not _only_looks(op) for op in reads[storage_id])
    }


def _only_looks(op: Op) -> bool:
    exchange = op.overload.startswith(("c10d.", "_c10d_functional."))
    number = bool(op.outputs) and all(prod(tensor.shape) == 1 for tensor in op.outputs)
    return exchange or op.name in _CLEARING or is_view(op) or (number and not op.written)
