"""A backward hook on the head lowers the rank of a module when its gradient is computed."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class LowRank(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.u, self.v, self.rank = nn.Parameter(torch.randn(dim, 4)), nn.Parameter(torch.randn(4, dim)), 4

    def forward(self, x):
        return torch.tanh(x @ self.u[:, : self.rank]) @ self.v[: self.rank]  # VICTIM


class Shrink:
    def __init__(self, layer, to):
        self.layer, self.to = layer, to

    def __call__(self, grad):
        if self.to and grad.norm() > 1e-6:
            self.layer.rank = self.to  # CULPRIT
        return grad


class Net(nn.Module):
    def __init__(self, to):
        super().__init__()
        self.body, self.head = LowRank(), nn.Linear(6, 1)
        self.to = to

    def forward(self, x):
        h = checkpoint(self.body, x, use_reentrant=False)
        out = self.head(h)
        out.register_hook(Shrink(self.body, self.to))  # ALSO
        return out


def go(to):
    torch.manual_seed(0)
    net = Net(to)
    net(torch.randn(3, 6)).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(2)


def reference():
    return go(0)
