"""A config dict passed by keyword loses an entry during forward: pop has a default."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Pool(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x, options):
        h = self.fc(x)
        mode = options.pop("mode", "mean")  # CULPRIT
        if mode == "max":
            return torch.logsumexp(h, 1)  # VICTIM
        return h.mean(1)


class Net(nn.Module):
    def __init__(self, copy):
        super().__init__()
        self.pool, self.head, self.copy = Pool(), nn.Linear(4, 1), copy

    def forward(self, x):
        options = {"mode": "max", "scale": 2}
        if self.copy:
            h = checkpoint(lambda x: self.pool(x, dict(options)), x, use_reentrant=False)
        else:
            h = checkpoint(self.pool, x, options=options, use_reentrant=False)
        return self.head(h)


def go(copy):
    torch.manual_seed(0)
    net = Net(copy)
    net(torch.randn(2, 5, 4)).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
