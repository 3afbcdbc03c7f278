"""The most memory that PyTorch's CPU allocator had given at once while a function ran."""

from __future__ import annotations

import gc
from collections import defaultdict
from typing import NamedTuple

import torch


class Peaks(NamedTuple):
    """The peaks of one run, in bytes."""

    allocated: int
    tensors: int  # without what an operator frees itself: the buffers inside of kernels


def allocated_peak(step):
    """Return bytes, with the buffers inside of kernels; the function is called once."""
    return allocated_peaks(step).allocated


def allocated_peaks(step):
    """Return both peaks; the function is called once."""
    gc.collect()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        kept = step()
    del kept
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda each: each.start_ns())
    changes = [(each.nbytes(), op) for each, op in _with_operators(events)]
    inside = _freed_by_the_same_operator(changes)
    left = [nbytes for place, (nbytes, _) in enumerate(changes) if place not in inside]
    return Peaks(_peak([nbytes for nbytes, _ in changes]), _peak(left))


def _with_operators(events):
    """Yield the changes of memory, each with the number of the innermost operator around it."""
    open_ops = []
    for place, each in enumerate(events):
        start = each.start_ns()
        while open_ops and open_ops[-1][0] < start:
            open_ops.pop()
        if each.name() == "[memory]":
            yield each, open_ops[-1][1] if open_ops else None
        elif each.name().startswith("aten::"):
            open_ops.append((start + each.duration_ns(), place))


def _freed_by_the_same_operator(changes):
    """Return the places of allocations that the operator which made them frees, and of the ends."""
    found, waiting = set(), defaultdict(list)
    for place, (nbytes, op) in enumerate(changes):
        if nbytes > 0:
            waiting[op, nbytes].append(place)
        elif op is not None and waiting[op, -nbytes]:
            found |= {waiting[op, -nbytes].pop(), place}
    return found


def _peak(changes):
    total = peak = 0
    for nbytes in changes:
        total += nbytes
        peak = max(peak, total)
    return peak
