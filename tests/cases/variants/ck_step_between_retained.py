"""The optimizer steps between two backwards through the same checkpointed trunk."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Tasks(nn.Module):
    def __init__(self, dim=5):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, dim), nn.Tanh())
        self.a, self.b = nn.Linear(dim, 1), nn.Linear(dim, 1)

    def forward(self, x):
        h = checkpoint(self.trunk, x, use_reentrant=False)  # VICTIM
        return self.a(h).pow(2).mean(), self.b(h).pow(2).mean()


class Alternating:
    def __init__(self, net, early):
        self.net, self.early = net, early
        self.opt = torch.optim.SGD(net.trunk.parameters(), lr=0.1, fused=False)

    def fit(self, x):
        first, second = self.net(x)
        first.backward(retain_graph=True)
        if self.early:
            self.opt.step()  # CULPRIT
        second.backward()
        if not self.early:
            self.opt.step()


def go(early):
    torch.manual_seed(0)
    net = Tasks()
    Alternating(net, early).fit(torch.randn(4, 5))
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
