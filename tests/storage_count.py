"""The bytes of live storages after each operator, counted by weak references."""

from __future__ import annotations

import gc
import weakref
from bisect import bisect_right
from collections import Counter
from itertools import accumulate

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import autogradviz
from autogradviz.analysis.memory_by_kind import measure_memory


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


def live_bytes(step):
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
    with autogradviz.record(memory=True) as trace, count:
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
    return ours, count.totals
