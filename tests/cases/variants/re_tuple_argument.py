"""The modulation is a tuple of tensors, which a reentrant checkpoint ignores."""

import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Modulation(nn.Module):
    def __init__(self, d, as_tuple):
        super().__init__()
        self.linear, self.as_tuple = nn.Linear(d, 3 * d), as_tuple

    def forward(self, temb):
        mod = self.linear(F.silu(temb))  # VICTIM
        return mod.chunk(3, dim=-1) if self.as_tuple else mod  # ALSO


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.ff = nn.Linear(d, d)

    def forward(self, x, mod):
        shift, scale, gate = mod if isinstance(mod, tuple) else mod.chunk(3, dim=-1)
        return x + gate * torch.tanh(self.ff(x * (1 + scale) + shift))


class Transformer(nn.Module):
    def __init__(self, as_tuple, d=6):
        super().__init__()
        self.embed, self.modulation = nn.Linear(d, d), Modulation(d, as_tuple)
        self.blocks = nn.ModuleList(Block(d) for _ in range(2))

    def forward(self, x, temb):
        mod = self.modulation(temb)
        x = self.embed(x)
        for block in self.blocks:
            x = checkpoint(block, x, mod, use_reentrant=True)  # CULPRIT
        return x


def _step(fixed):
    torch.manual_seed(0)
    net = Transformer(as_tuple=not fixed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net(torch.randn(4, 6), torch.randn(4, 6)).square().mean().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return _step(False)


def reference():
    return _step(True)
