"""The NumPy lengths of the collator are changed in place for the next batch before backward."""
import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Collator:
    def __init__(self, batch, reuse):
        self.lengths = np.zeros(batch, dtype=np.int64)
        self.reuse = reuse

    def __call__(self, items):
        if not self.reuse:
            self.lengths = np.zeros(len(items), dtype=np.int64)
        for i, item in enumerate(items):
            self.lengths[i] = len(item)  # CULPRIT
        padded = torch.zeros(len(items), 7, 4)
        for i, item in enumerate(items):
            padded[i, : len(item)] = item
        return padded, self.lengths


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x, lengths):
        x = x[:, : int(lengths.max())]
        return torch.tanh(self.fc(x)).sum()  # VICTIM


def batches():
    g = torch.Generator().manual_seed(3)
    for sizes in ((3, 5), (7, 2)):
        yield [torch.randn(n, 4, generator=g) for n in sizes]


def go(reuse):
    torch.manual_seed(0)
    net, collate = Encoder(), Collator(2, reuse)
    waiting = None
    for items in batches():
        fresh = collate(items)  # ALSO
        if waiting is not None:
            waiting.backward()
        x, lengths = fresh
        waiting = checkpoint(net, x, lengths, use_reentrant=False)
    waiting.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
