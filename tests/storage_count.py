"""The bytes of live storages after each operator: by weak references, and by an allocator."""

from __future__ import annotations

import gc
import weakref
from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import accumulate

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import autogradviz
from autogradviz.analysis.memory_by_kind import measure_memory
from autogradviz.events import BackwardStarted


class StorageCount(TorchDispatchMode):
    """Counts the bytes of the storages that are alive after each operator, by weak references."""

    def __init__(self):
        super().__init__()
        self.storages = {}
        self.totals = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.see((args, kwargs))
        result = func(*args, **(kwargs or {}))
        self.see(result)
        alive = [nbytes for storage, nbytes in self.storages.values() if storage() is not None]
        self.totals.append((str(func), sum(alive)))
        return result

    def see(self, values):
        for tensor in tree_leaves(values):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                known = self.storages.get(id(storage))
                if known is None or known[0]() is not storage:
                    self.storages[id(storage)] = weakref.ref(storage), storage.nbytes()


def live_bytes(step, engine="auto"):
    """Return the live bytes after each operator of a step: recorded, and counted.

    Storages that no operator takes or returns are left out of the recorded ones: numbers which
    nodes save as tensors are shown to no mode.
    """
    gc.collect()
    count = StorageCount()
    with torch._C.DisableTorchFunction():
        before = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
        count.see(before)
        del before
    with autogradviz.record(memory=True, engine=engine) as trace, count:
        kept = step()
    del kept
    ops = trace.analysis.ops
    lives = measure_memory(trace.analysis, as_plain=False)._lives
    shown = {tensor.storage_id for op in ops for tensor in (*op.inputs, *op.outputs)}
    changes = Counter()
    for life in lives:
        if life.storage_id in shown or life.born < ops[0].seq:
            changes[life.born] += life.nbytes
            if life.died is not None:
                changes[life.died] -= life.nbytes
    seqs = sorted(changes)
    totals = [0, *accumulate(changes[seq] for seq in seqs)]
    ours = [(op.overload, totals[bisect_right(seqs, op.seq)]) for op in ops]
    return without_ranges(ours), without_ranges(count.totals)


def without_ranges(totals):
    """Return the totals of operators that compute.

    The native engine records no ranges, and reads of ``.data``, which no mode sees.
    """
    return [each for each in totals if not each[0].startswith(("profiler.", "aten.detach."))]


def known_bytes(point):
    """Return the bytes of storages, without what was read from the allocator."""
    return point.total - point.nbytes.get("unaccounted", 0)


class AllocatorCount(TorchDispatchMode):
    """Reads the allocator of a device after each operator."""

    def __init__(self, device):
        super().__init__()
        self.device = device
        self.totals = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.totals.append((str(func), self.allocated()))
        return result

    def allocated(self):
        return torch.accelerator.memory_stats(self.device)["requested_bytes.all.current"]


def device_bytes(step, device, engine="auto"):
    """Return the live bytes of a device after each operator of a step: recorded, and allocated.

    Tensors that the step creates are on the default device.
    """
    gc.collect()
    count = AllocatorCount(device)
    assert not count.allocated()  # else the recording has it too
    with autogradviz.record(memory=True, engine=engine) as trace, count:
        kept = step()
    del kept
    memory = measure_memory(trace.analysis, device=device, as_plain=False)
    # The recorder copies each loss on its device, and reads the copy at the end.
    started = trace.log.of(BackwardStarted)
    copies = [each.seq for each in started if each.parent_backward_id is None]
    ours = [
        (op.overload, known_bytes(memory.at(op.seq)) + 4 * bisect_left(copies, op.seq))
        for op in trace.analysis.ops
    ]
    return without_ranges(ours), without_ranges(count.totals)
