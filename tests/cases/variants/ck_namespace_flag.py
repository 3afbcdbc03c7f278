"""A flag in a shared namespace is changed for evaluation before backward."""

import types

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

cfg = types.SimpleNamespace(scale_attn=True, heads=2)


class Attn(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.qk, self.v = nn.Linear(dim, 2 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k = self.qk(x).chunk(2, -1)
        w = q @ k.transpose(-1, -2)
        if cfg.scale_attn:
            w = w * torch.rsqrt(torch.tensor(float(q.shape[-1])))  # VICTIM
        return w.softmax(-1) @ self.v(x)


def export_settings():
    cfg.scale_attn = False  # CULPRIT
    return vars(cfg)


def go(early):
    torch.manual_seed(0)
    cfg.scale_attn = True
    net = Attn()
    y = checkpoint(net, torch.randn(2, 5, 8), use_reentrant=False)
    if early:
        export_settings()  # ALSO
    y.square().sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
