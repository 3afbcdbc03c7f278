"""A history of CPU memory in the format of ``torch.cuda.memory._snapshot()``.

A dispatch mode sees each new storage, and a weak reference when it is freed. Addresses are those of
the CPU's allocator, so they are used again as on a GPU.
"""

from __future__ import annotations

import sys
import time
import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class StandInAllocator(TorchDispatchMode):
    """Records what is allocated while it is entered, and at most ``max_entries`` of it."""

    def __init__(self, *older, max_entries=None):
        super().__init__()
        self._max_entries = max_entries
        self._entries = []
        self._in_use = {}
        for tensor in older:
            self._see(tensor, None)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor, sys._getframe(1))
        return result

    def _see(self, tensor, frame):
        storage = tensor.untyped_storage()
        address = torch._C._data_address(tensor)
        address -= tensor.storage_offset() * tensor.element_size()
        if not address or (address in self._in_use and self._in_use[address][1]() is storage):
            return
        frames = []
        while frame is not None and len(frames) < 60:
            code = frame.f_code
            frames.append(
                {"filename": code.co_filename, "line": frame.f_lineno, "name": code.co_name}
            )
            frame = frame.f_back
        size = len(storage)
        if frames:
            self._enter("alloc", address, size, frames)
        self._in_use[address] = (size, weakref.ref(storage), frames)
        weakref.finalize(storage, self._freed, address, size)

    def _freed(self, address, size):
        self._in_use.pop(address, None)
        self._enter("free_requested", address, size, [])
        self._enter("free_completed", address, size, [])

    def _enter(self, action, address, size, frames):
        self._entries.append({
            "action": action, "addr": address, "size": size, "stream": 0,
            "time_us": time.time_ns() // 1000, "frames": frames, "pool_id": (0, 0),
        })  # fmt: skip

    def snapshot(self):
        """Return the history so far, and what is in use."""
        blocks = [
            {
                "address": address, "size": -(-size // 512) * 512, "requested_size": size,
                "state": "active_allocated", "frames": frames,
            }
            for address, (size, _, frames) in sorted(self._in_use.items())
        ]  # fmt: skip
        segments = [
            {"device": 0, "address": block["address"], "total_size": block["size"], "stream": 0,
             "segment_type": "small", "blocks": [block]}
            for block in blocks
        ]  # fmt: skip
        entries = self._entries[-self._max_entries :] if self._max_entries else self._entries
        return {"segments": segments, "device_traces": [list(entries)]}
