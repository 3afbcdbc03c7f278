"""A custom CheckpointFunction runs the block again without restoring the RNG state."""

import torch
from torch import nn


class CheckpointFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run_function, length, rng, *args):
        ctx.run_function = run_function
        ctx.input_tensors, ctx.input_params = list(args[:length]), list(args[length:])
        ctx.rng_state = torch.get_rng_state() if rng else None
        with torch.no_grad():
            return ctx.run_function(*ctx.input_tensors)

    @staticmethod
    def backward(ctx, *output_grads):
        ctx.input_tensors = [x.detach().requires_grad_(True) for x in ctx.input_tensors]
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            if ctx.rng_state is not None:
                torch.set_rng_state(ctx.rng_state)
            shallow_copies = [x.view_as(x) for x in ctx.input_tensors]
            output_tensors = ctx.run_function(*shallow_copies)  # CULPRIT
        inputs = ctx.input_tensors + ctx.input_params
        return (
            None,
            None,
            None,
            *torch.autograd.grad(output_tensors, inputs, output_grads, allow_unused=True),
        )


def run_checkpoint(func, inputs, params, rng):
    return CheckpointFunction.apply(func, len(inputs), rng, *inputs, *params)  # ALSO


class ResBlock(nn.Module):
    def __init__(self, d, rng):
        super().__init__()
        self.inner, self.outer, self.dropout = nn.Linear(d, d), nn.Linear(d, d), nn.Dropout(0.3)
        self.rng = rng

    def forward(self, x, emb):
        return run_checkpoint(self._forward, (x, emb), self.parameters(), self.rng)

    def _forward(self, x, emb):
        h = torch.nn.functional.silu(self.inner(x + emb))
        h = self.dropout(h)  # VICTIM
        return x + self.outer(h)


class UNet(nn.Module):
    def __init__(self, rng, d=8):
        super().__init__()
        self.blocks = nn.ModuleList(ResBlock(d, rng) for _ in range(2))

    def forward(self, x, emb):
        for block in self.blocks:
            x = block(x, emb)
        return x


def _step(fixed):
    torch.manual_seed(0)
    net = UNet(rng=fixed)
    net(torch.randn(4, 8), torch.randn(4, 8)).square().mean().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return _step(False)


def reference():
    return _step(True)
