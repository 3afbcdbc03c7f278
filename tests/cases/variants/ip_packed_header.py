"""A recorder writes a header into the first bytes of its input arrays."""
import struct
import numpy as np
import torch
from torch import nn


def padded(rows):
    out = np.zeros((rows.shape[0] + 1, rows.shape[1]), dtype=np.float32)
    out[1:] = rows
    return torch.from_numpy(out)


class Recorder:
    def __init__(self):
        self.arrays = {}

    def keep(self, name, tensor, copies):
        array = tensor.detach().numpy()
        self.arrays = dict(name=name, rows=array.copy() if copies else array)

    def flush(self, step):
        struct.pack_into("f", self.arrays["rows"].data.cast("B"), 0, float(step))  # CULPRIT


def go(copies):
    torch.manual_seed(0)
    first, second, recorder = nn.Linear(3, 4), nn.Linear(4, 2), Recorder()
    h = first(padded(np.ones((2, 3), dtype=np.float32)))
    loss = second(h.sin()).square().sum()  # VICTIM
    recorder.keep("h", h, copies)
    recorder.flush(7)  # ALSO
    loss.backward()
    return {n: p.grad for n, p in first.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
