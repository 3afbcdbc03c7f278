"""The most memory that PyTorch's CPU allocator had given at once while a function ran."""

from __future__ import annotations

import gc
from collections import defaultdict
from functools import cache
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
    changes = [(each.nbytes(), open_ops) for each, open_ops in _with_operators(events)]
    inside = _freed_inside(changes)
    left = [nbytes for place, (nbytes, _) in enumerate(changes) if place not in inside]
    return Peaks(_peak([nbytes for nbytes, _ in changes]), _peak(left))


def _with_operators(events):
    """Yield the changes of memory, each with the operators around it: place and name."""
    open_ops = []
    for place, each in enumerate(events):
        start = each.start_ns()
        while open_ops and open_ops[-1][0] < start:
            open_ops.pop()
        if each.name() == "[memory]":
            yield each, tuple(op for _, op in open_ops)
        elif each.name().startswith("aten::"):
            open_ops.append((start + each.duration_ns(), (place, each.name())))


def _freed_inside(changes):
    """Return the places of allocations that the operator around them frees, and of the ends.

    Operators that consist of others are not counted: a recording sees the parts, and their results.
    """
    found, waiting = set(), defaultdict(list)
    for place, (nbytes, open_ops) in enumerate(changes):
        if nbytes > 0:
            waiting[nbytes].append((place, open_ops))
        elif open_ops and not _consists_of_others(open_ops[-1][1]):
            own = [each for each in waiting[-nbytes] if open_ops[-1] in each[1]]
            if own:
                waiting[-nbytes].remove(own[-1])
                found |= {own[-1][0], place}
    return found


@cache
def _consists_of_others(name):
    key = "CompositeImplicitAutograd"
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    known = torch._C._dispatch_get_all_op_names()
    return any(has_kernel(each, key) for each in known if each.partition(".")[0] == name)


def _peak(changes):
    total = peak = 0
    for nbytes in changes:
        total += nbytes
        peak = max(peak, total)
    return peak
