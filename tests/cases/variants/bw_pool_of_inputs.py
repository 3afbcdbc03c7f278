"""An offloading checkpoint keeps inputs in a pool with one buffer per layer, overwritten later."""

import torch
from torch import nn


class BufferPool:
    def __init__(self, reuse):
        self.buffers, self.reuse = {}, reuse

    def store(self, layer, x):
        if not self.reuse:
            return x.clone()
        if layer not in self.buffers:
            self.buffers[layer] = torch.empty_like(x)
        buffer = self.buffers[layer]
        buffer.copy_(x)  # CULPRIT
        return buffer


class OffloadedCheckpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, block, pool, layer, x):
        ctx.block = block
        ctx.stored = pool.store(layer, x.detach())  # ALSO
        with torch.no_grad():
            return block(x)

    @staticmethod
    def backward(ctx, grad):
        x = ctx.stored.clone().requires_grad_()
        with torch.enable_grad():
            out = ctx.block(x)  # ALSO
        torch.autograd.backward(out, grad)
        return None, None, None, x.grad


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        h = self.up(x)  # VICTIM
        return x + self.down(torch.tanh(h))


class RewardModel(nn.Module):
    def __init__(self, pool, n=2, d=5):
        super().__init__()
        self.embed = nn.Linear(d, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(n))
        self.head, self.pool = nn.Linear(d, 1), pool

    def forward(self, x):
        x = self.embed(x)
        for layer, block in enumerate(self.blocks):
            x = OffloadedCheckpoint.apply(block, self.pool, layer, x)  # ALSO
        return self.head(x).mean()


def _step(reuse):
    torch.manual_seed(0)
    model = RewardModel(BufferPool(reuse))
    chosen, rejected = torch.randn(4, 5), torch.randn(4, 5)
    reward = model(chosen)
    loss = -nn.functional.logsigmoid(reward - model(rejected))  # ALSO
    loss.backward()
    return {n: p.grad for n, p in model.named_parameters()}


def run():
    return _step(True)


def reference():
    return _step(False)
