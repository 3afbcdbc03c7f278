"""Relative positions are built on first use and registered as a buffer, inside the checkpointed layer."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class RelativeBias(nn.Module):
    def __init__(self, heads, eager_for=None):
        super().__init__()
        self.slopes = nn.Parameter(torch.rand(heads))
        if eager_for is not None:
            self._build(eager_for)

    def _build(self, n):
        at = torch.arange(n)
        self.register_buffer("distance", (at[None] - at[:, None]).abs().float(), persistent=False)  # CULPRIT

    def forward(self, n):
        if not hasattr(self, "distance") or self.distance.shape[0] < n:
            self._build(n)  # ALSO
            return -torch.sqrt(self.slopes[:, None, None].exp() * self.distance + 1)  # VICTIM
        return -(self.slopes[:, None, None] * self.distance[:n, :n])


class Layer(nn.Module):
    def __init__(self, bias, dim=8, heads=2):
        super().__init__()
        self.qkv, self.bias, self.heads = nn.Linear(dim, 3 * dim), bias, heads

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = (q @ k.transpose(-1, -2) + self.bias(n)).softmax(-1)
        return (a @ v).transpose(1, 2).reshape(b, n, d)


def go(eager):
    torch.manual_seed(0)
    net = Layer(RelativeBias(2, eager))
    checkpoint(net, torch.randn(2, 5, 8), use_reentrant=False).pow(2).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(None)


def reference():
    return go(5)
