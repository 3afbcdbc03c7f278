"""A custom checkpoint recomputes under autocast(), but with the default dtype of autocast."""

import torch
from torch import nn


class CheckpointFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run_function, keep_dtype, x):
        ctx.run_function = run_function
        ctx.fwd_autocast = torch.is_autocast_enabled("cpu")
        ctx.fwd_dtype = torch.get_autocast_dtype("cpu") if keep_dtype else None
        ctx.save_for_backward(x)
        with torch.no_grad():
            return run_function(x)

    @staticmethod
    def backward(ctx, grad):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        if ctx.fwd_dtype is not None:
            context = torch.autocast("cpu", dtype=ctx.fwd_dtype, enabled=ctx.fwd_autocast)
        else:
            context = torch.autocast("cpu", enabled=ctx.fwd_autocast)  # CULPRIT
        with torch.enable_grad(), context:
            y = ctx.run_function(x)  # ALSO
        torch.autograd.backward(y, grad)
        return None, None, x.grad


class FeedForward(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        h = torch.sin(8 * self.up(x))  # VICTIM
        return x + self.down(h).float()  # VICTIM


def _step(fixed):
    torch.manual_seed(0)
    layers = nn.ModuleList(FeedForward() for _ in range(2))
    x = torch.randn(4, 8, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.float16):
        h = x
        for layer in layers:
            h = CheckpointFunction.apply(layer, fixed, h)
        loss = h.square().mean()
    loss.backward()
    return {n: p.grad for n, p in layers.named_parameters()}


def run():
    return _step(False)


def reference():
    return _step(True)
