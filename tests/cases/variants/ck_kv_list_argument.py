"""Past keys are passed as a list argument, which every layer extends."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Layer(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x, past, use_cache):
        q, k, v = self.qkv(x).chunk(3, -1)
        if use_cache:
            past.extend([k.detach(), v.detach()])  # CULPRIT
            k = torch.cat(past[0::2], 0)
            v = torch.cat(past[1::2], 0)
        return (q @ k.t()).softmax(-1) @ v  # VICTIM


def go(use_cache):
    torch.manual_seed(0)
    layer = Layer()
    y = checkpoint(layer, torch.randn(3, 4), [], use_cache, use_reentrant=False)
    y.square().sum().backward()
    return {n: p.grad for n, p in layer.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
