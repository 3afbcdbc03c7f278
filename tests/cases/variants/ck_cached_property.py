"""functools.cached_property computes a rotation, with its graph, only in the first run."""

import functools
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self, bug):
        super().__init__()
        self.raw, self.fc, self.bug = nn.Parameter(torch.randn(4, 4)), nn.Linear(4, 4), bug

    def skew(self):
        return torch.linalg.matrix_exp(self.raw - self.raw.T)  # VICTIM

    @functools.cached_property  # CULPRIT
    def rotation(self):
        return self.skew()  # ALSO

    def forward(self, x):
        rot = self.rotation if self.bug else self.skew()
        return torch.tanh(self.fc(x @ rot))


def go(bug):
    torch.manual_seed(0)
    net = Net(bug)
    checkpoint(net, torch.randn(3, 4), use_reentrant=False).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
