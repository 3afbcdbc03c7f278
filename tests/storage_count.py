"""The bytes of live storages after each operator, counted by weak references."""

from __future__ import annotations

import gc
import weakref

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

    Both are without what was alive before the first operator.
    """
    gc.collect()
    count = StorageCount()
    with autogradviz.record(memory=True) as trace, count:
        kept = step()
    del kept
    memory = measure_memory(trace.analysis, as_plain=False)
    before = memory.at(trace.analysis.ops[0].seq - 1).total
    return [
        (op.overload, memory.at(op.seq).total - before) for op in trace.analysis.ops
    ], count.totals
