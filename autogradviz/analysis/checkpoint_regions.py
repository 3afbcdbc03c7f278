"""Checkpointed regions with their original forward and their recomputations."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from autogradviz.analysis.align_ops import align, first_different_row
from autogradviz.analysis.tensor_and_module_tables import acyclic
from autogradviz.analysis.types import Recomputation, Region
from autogradviz.events import (
    RecomputeStarted,
    RecomputeStopped,
    RegionEntered,
    RegionExited,
    TensorSeen,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from autogradviz.analysis.types import Module, Op, SavedTensor
    from autogradviz.event_log import Log
    from autogradviz.event_log.stacks import Stacks


@dataclass(frozen=True, slots=True)
class _Nesting:
    """Nesting of regions and recomputations.

    Each recomputation of an outer checkpoint enters the checkpoints inside it as new regions,
    whose original forward then belongs to that recomputation.
    """

    region_parents: dict[int, int | None]
    entered_by: dict[int, int | None]  # region -> the recomputation that entered it
    recompute_parents: dict[int, int | None]


def build_regions(
    log: Log,
    stacks: Stacks,
    modules: dict[int, Module],
    call_modules: dict[int | None, str],
    ops: Iterable[Op],
    saved: Iterable[SavedTensor],
    parameters: Container[int],
) -> tuple[Region, ...]:
    """Return all checkpointed regions, in the order in which they were entered."""
    if not log.of(RegionEntered) and not log.of(RecomputeStarted):
        return ()
    nesting = _read_nesting(log)
    forward_ops, recomputed_ops = _group_ops(ops, nesting, stacks)
    forward_saved, recomputed_saved = _group_saved(saved, nesting)
    recomputations = _build_recomputations(
        log, forward_ops, recomputed_ops, recomputed_saved, parameters
    )
    exits = {event.region_id: event for event in log.of(RegionExited)}
    regions: list[Region] = []
    for event in log.of(RegionEntered):
        exit_ = exits.get(event.region_id)
        regions.append(
            Region(
                region_id=event.region_id,
                parent_region_id=nesting.region_parents[event.region_id],
                module=modules[event.module_id].name
                if event.module_id in modules
                else call_modules.get(event.call_id, ""),
                function=event.function,
                reentrant=event.reentrant,
                early_stop=event.early_stop,
                preserve_rng=event.preserve_rng,
                debug=event.debug,
                determinism_check=event.determinism_check,
                failed=exit_ is not None and exit_.failed,
                location=stacks.location(event.stack_id),
                entered_seq=event.seq,
                exited_seq=None if exit_ is None else exit_.seq,
                duration_ns=0 if exit_ is None else exit_.time_ns - event.time_ns,
                ops=tuple(forward_ops[event.region_id]),
                saved=tuple(sorted(forward_saved[event.region_id], key=_position)),
                recomputations=tuple(recomputations[event.region_id]),
            )
        )
    return tuple(regions)


def _read_nesting(log: Log) -> _Nesting:
    parents = acyclic(dict(log.fields(RegionEntered, "region_id", "parent_region_id")))
    nesting = _Nesting(parents, {}, {})
    running: dict[int, int | None] = {}  # thread -> innermost recomputation
    for event in log.merged(RegionEntered, RecomputeStarted, RecomputeStopped):
        if isinstance(event, RegionEntered):
            nesting.entered_by[event.region_id] = running.get(event.thread)
        elif isinstance(event, RecomputeStarted):
            if event.recompute_id not in nesting.recompute_parents:
                nesting.recompute_parents[event.recompute_id] = running.get(event.thread)
                running[event.thread] = event.recompute_id
        elif isinstance(event, RecomputeStopped):
            running[event.thread] = nesting.recompute_parents.get(event.recompute_id)
    return nesting


def _group_ops(
    ops: Iterable[Op], nesting: _Nesting, stacks: Stacks
) -> tuple[dict[int, list[Op]], dict[int, list[Op]]]:
    """Return the ops of each region's original forward, and of each recomputation."""
    forward: dict[int, list[Op]] = defaultdict(list)
    recomputed: dict[int, list[Op]] = defaultdict(list)
    for op in ops:
        if op.region_id is None and op.recompute_id is None:
            continue
        if _is_checkpoint_internal(op, stacks):
            continue
        region_id = op.region_id
        while region_id is not None:
            if nesting.entered_by.get(region_id) == op.recompute_id:
                forward[region_id].append(op)
            region_id = nesting.region_parents.get(region_id)
        recompute_id = op.recompute_id
        while recompute_id is not None:
            recomputed[recompute_id].append(op)
            recompute_id = nesting.recompute_parents.get(recompute_id)
    return forward, recomputed


def _is_checkpoint_internal(op: Op, stacks: Stacks) -> bool:
    """Return whether checkpoint's own code called the op, to hold inputs and recomputed tensors.

    A checkpointed C++ function has the same caller, so the op's name decides too.
    """
    if op.name not in {"detach", "empty"}:  # "empty" before PyTorch 2.13
        return False
    return stacks.calling_file(op.stack_id).endswith("torch/utils/checkpoint.py")


def _group_saved(
    saved: Iterable[SavedTensor], nesting: _Nesting
) -> tuple[dict[int, list[SavedTensor]], dict[int, list[SavedTensor]]]:
    """Return the tensors saved by each region's original forward, and by each recomputation."""
    forward: dict[int, list[SavedTensor]] = defaultdict(list)
    recomputed: dict[int, list[SavedTensor]] = defaultdict(list)
    for tensor in saved:
        if tensor.is_argument:
            continue
        region_id, recompute_id = tensor.region_id, tensor.recompute_id
        if region_id is not None and nesting.entered_by.get(region_id) == recompute_id:
            forward[region_id].append(tensor)
        elif recompute_id is not None:
            recomputed[recompute_id].append(tensor)
    return forward, recomputed


def _position(tensor: SavedTensor) -> tuple[int, int]:
    return (-1 if tensor.position is None else tensor.position, tensor.saved_id)


def _build_recomputations(
    log: Log,
    forward_ops: dict[int, list[Op]],
    recomputed_ops: dict[int, list[Op]],
    recomputed_saved: dict[int, list[SavedTensor]],
    parameters: Container[int],
) -> dict[int | None, list[Recomputation]]:
    """Return the recomputations of each region, oldest first."""
    stops = {event.recompute_id: event for event in log.of(RecomputeStopped)}
    begins: dict[int | None, int] = {e.region_id: e.seq for e in log.of(RegionEntered)}
    first_seen = dict(reversed(list(log.fields(TensorSeen, "storage_id", "seq"))))
    reentrant = {event.region_id for event in log.of(RegionEntered) if event.reentrant}
    recomputations: dict[int | None, list[Recomputation]] = defaultdict(list)
    for event in log.of(RecomputeStarted):
        stop = stops.get(event.recompute_id)
        outcome = None if stop is None else stop.outcome
        ops = recomputed_ops[event.recompute_id]
        if event.region_id in reentrant:
            ops = _without_result_saves(ops)
        forward = [] if event.region_id is None else forward_ops[event.region_id]
        existed = partial(_existed, first_seen, begins.get(event.region_id, 0))
        pairs = align(forward, ops, outcome, parameters=parameters, existed=existed)
        recomputations[event.region_id].append(
            Recomputation(
                recompute_id=event.recompute_id,
                region_id=event.region_id,
                backward_id=event.backward_id,
                node_id=event.node_id,
                exec_group=event.exec_group,
                outcome=outcome,
                started_seq=event.seq,
                stopped_seq=None if stop is None else stop.seq,
                duration_ns=0 if stop is None else stop.time_ns - event.time_ns,
                ops=tuple(ops),
                saved=tuple(sorted(recomputed_saved[event.recompute_id], key=_position)),
                pairs=pairs,
                first_difference=first_different_row(pairs),
            )
        )
    return recomputations


def _existed(first_seen: Mapping[int | None, int], until: int, storage_id: int) -> bool:
    """Return whether a storage was seen before an event."""
    return first_seen.get(storage_id, until) < until


def _without_result_saves(ops: list[Op]) -> list[Op]:
    """Return the ops without the ``detach`` calls with which autograd saves results.

    The forward of a reentrant region runs without gradients and saves nothing. Only in the
    recomputation does an op that saves its result detach it, with the same stack.
    """
    return [
        op
        for before, op in zip([None, *ops], ops, strict=False)
        if op.name != "detach"
        or before is None
        or op.stack_id is None
        or op.stack_id != before.stack_id
        or not set(op.inputs) <= set(before.outputs)
    ]
