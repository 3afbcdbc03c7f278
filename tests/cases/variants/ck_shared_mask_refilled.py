"""A mask tensor of the dataset is refilled in place for the next item before backward."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Items:
    def __init__(self, share):
        self.mask, self.share = torch.zeros(2, 5, dtype=torch.bool), share
        self.g = torch.Generator().manual_seed(1)

    def __getitem__(self, i):
        if not self.share:
            self.mask = torch.zeros(2, 5, dtype=torch.bool)
        torch.lt(torch.rand(2, 5, generator=self.g), 0.4 + 0.1 * i, out=self.mask)  # CULPRIT
        return torch.randn(2, 5, 4, generator=self.g), {"mask": self.mask}


class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x, extra):
        h = torch.tanh(self.fc(x))
        return h.masked_fill(extra["mask"][..., None], 0.0).sum(1)  # VICTIM


class Accumulate:
    def __init__(self, net, items):
        self.net, self.items = net, items

    def step(self, n):
        total = 0
        for i in range(n):
            x, extra = self.items[i]  # ALSO
            total = total + checkpoint(self.net, x, extra, use_reentrant=False).pow(2).mean()
        total.backward()


def go(share):
    torch.manual_seed(0)
    net = Pool()
    Accumulate(net, Items(share)).step(3)
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
