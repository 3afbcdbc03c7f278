"""A Python generator counts steps: each next() call advances it, in the recomputation too."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def warm_up():
    steps = 0
    while True:
        yield steps
        steps += 1  # ALSO


class Warm(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.schedule = nn.Linear(4, 4), warm_up()
        next(self.schedule)

    def forward(self, x):
        steps = self.schedule.gi_frame.f_locals["steps"]
        return torch.tanh(self.fc(x) * (1.0 + steps))  # VICTIM


def go(early):
    torch.manual_seed(0)
    net = Warm()
    loss = checkpoint(net, torch.randn(3, 4), use_reentrant=False).sum()
    if early:
        next(net.schedule)  # CULPRIT
    loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
