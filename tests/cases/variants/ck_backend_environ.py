"""A layer reads the attention backend from os.environ, which a profiler changes after forward."""
import os
import contextlib

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

KEY = "TINY_ATTENTION"


def manual(q, k, v):
    return (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v  # VICTIM


REGISTRY = {"sdpa": F.scaled_dot_product_attention, "manual": manual}


@contextlib.contextmanager
def attention(kind):
    before = os.environ.get(KEY)
    os.environ[KEY] = kind
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(KEY)  # ALSO
        else:
            os.environ[KEY] = before


class Attention(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        q, k, v = self.qkv(x)[:, None].chunk(3, -1)
        kind = os.environ.get(KEY, "sdpa")
        return REGISTRY[kind](q, k, v)


def go(early):
    torch.manual_seed(0)
    net = Attention()
    with attention("manual"):  # CULPRIT
        loss = checkpoint(net, torch.randn(2, 4, 8), use_reentrant=False).pow(2).sum()
        if not early:
            loss.backward()
    if early:
        loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
