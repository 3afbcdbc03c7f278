"""A sampler shuffles the rows of an array that shares memory with a tensor."""
import numpy as np
import torch
from torch import nn


def whiten(rows):
    rows -= rows.mean(0)
    rows /= rows.std(0)
    return torch.from_numpy(rows)


class Sampler:
    def __init__(self, rows, copies):
        self.rows, self.rng = rows, np.random.default_rng(3)
        self.copies = copies

    def batch(self):
        return torch.from_numpy(self.rows.copy() if self.copies else self.rows)

    def epoch(self):
        self.rng.shuffle(self.rows)  # CULPRIT


def go(copies):
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    offset = whiten(np.random.default_rng(0).random((4, 3), dtype=np.float32))
    sampler = Sampler(np.arange(12, dtype=np.float32).reshape(4, 3), copies)
    loss = (net(sampler.batch()) + net(offset)).square().sum()  # VICTIM
    sampler.epoch()  # ALSO
    loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
