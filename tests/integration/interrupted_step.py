"""A training step that raises KeyboardInterrupt at a given place."""

import torch
from torch.utils.checkpoint import checkpoint


class Interrupting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, where):
        ctx.where = where
        if where == "forward":
            raise KeyboardInterrupt
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if ctx.where == "backward":
            raise KeyboardInterrupt
        return gradient, None


def step(where):
    """Run a step with a checkpointed region; ``where`` is the place that raises, or None."""
    weight = torch.nn.Parameter(torch.ones(3))

    def part(x):
        return Interrupting.apply(x * weight, where).exp()

    def hook(gradient):
        if where == "hook":
            raise KeyboardInterrupt
        return gradient

    def pack(tensor):
        if where == "pack":
            raise KeyboardInterrupt
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        start = torch.ones(3, requires_grad=True).sin()
    out = checkpoint(part, start, use_reentrant=False)
    out.register_hook(hook)
    out.sum().backward()
