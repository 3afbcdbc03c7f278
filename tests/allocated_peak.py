"""The most memory that PyTorch's CPU allocator had given at once while a function ran."""

from __future__ import annotations

import gc

import torch


def allocated_peak(step):
    """Return bytes, with the buffers inside of kernels; the function is called once."""
    gc.collect()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        kept = step()
    del kept
    events = [
        each for each in profiler.profiler.kineto_results.events() if each.name() == "[memory]"
    ]
    total = peak = 0
    for event in sorted(events, key=lambda each: each.start_ns()):
        total += event.nbytes()
        peak = max(peak, total)
    return peak
