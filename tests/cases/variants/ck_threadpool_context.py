"""Backward runs in a worker thread; the precision flag is a ContextVar set in the main thread."""
import contextvars
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

low_rank = contextvars.ContextVar("low_rank", default=False)


class Projection(nn.Module):
    def __init__(self, dim=6, rank=2):
        super().__init__()
        self.full = nn.Linear(dim, dim, bias=False)
        self.a, self.b = nn.Linear(dim, rank, bias=False), nn.Linear(rank, dim, bias=False)

    def forward(self, x):
        if low_rank.get():
            return torch.tanh(self.b(self.a(x)))  # VICTIM
        return torch.tanh(self.full(x))


def send(pool, work, carry):
    if carry:
        return pool.submit(contextvars.copy_context().run, work)
    return pool.submit(work)  # ALSO


def go(carry):
    torch.manual_seed(0)
    net = Projection()
    token = low_rank.set(True)  # CULPRIT
    loss = checkpoint(net, torch.randn(3, 6), use_reentrant=False).sum()
    try:
        with ThreadPoolExecutor(1) as pool:
            send(pool, loss.backward, carry).result()  # ALSO
    finally:
        low_rank.reset(token)
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
