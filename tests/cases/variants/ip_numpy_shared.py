"""NumPy writes the memory of a saved tensor: no version changes."""

import numpy as np
import torch
from torch import nn


class Replay:
    def __init__(self, size):
        self.array = np.ones((size, 4), dtype=np.float32)

    def batch(self, copy):
        rows = torch.from_numpy(self.array)
        return rows.clone() if copy else rows

    def refill(self):
        self.array[:] = np.random.default_rng(0).normal(size=self.array.shape)  # CULPRIT


def go(copy):
    torch.manual_seed(0)
    net, replay = nn.Linear(4, 2), Replay(3)
    loss = net(replay.batch(copy)).square().mean()  # VICTIM
    replay.refill()  # ALSO
    loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
