"""Activated LoRA: forward pre-hooks set the offsets, and are removed before the recomputation."""

from contextlib import contextmanager
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class ALoraLinear(nn.Module):
    def __init__(self, d, r=2):
        super().__init__()
        self.base = nn.Linear(d, d).requires_grad_(False)
        self.lora_a, self.lora_b = nn.Linear(d, r, bias=False), nn.Linear(r, d, bias=False)

    def forward(self, x, alora_offsets=None):
        keep = torch.zeros(x.shape[0], x.shape[1], 1)
        for i, offset in enumerate(alora_offsets or []):
            keep[i, -offset:] = 1.0  # only the tokens after the invocation sequence are adapted
        return self.base(x) + keep * self.lora_b(self.lora_a(x))  # VICTIM


def add_offsets(module, args, kwargs, alora_offsets):
    return args, {**kwargs, "alora_offsets": alora_offsets}


class PeftModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.base_model = nn.ModuleList(ALoraLinear(8) for _ in range(2))

    @contextmanager
    def forward_hooks(self, alora_offsets):
        hook = partial(add_offsets, alora_offsets=alora_offsets)
        layers = [m for m in self.modules() if isinstance(m, ALoraLinear)]
        handles = [m.register_forward_pre_hook(hook, with_kwargs=True) for m in layers]
        yield
        for handle in handles:
            handle.remove()  # ALSO

    def blocks(self, x):
        for block in self.base_model:
            x = x + torch.tanh(checkpoint(block, x, use_reentrant=False))
        return x

    def forward(self, x, alora_offsets):
        with self.forward_hooks(alora_offsets):  # CULPRIT
            return self.blocks(x)


def _step(fixed):
    torch.manual_seed(0)
    model, x, offsets = PeftModel(), torch.randn(2, 5, 8), [2, 3]
    if fixed:
        with model.forward_hooks(offsets):
            model.blocks(x).square().mean().backward()
    else:
        model(x, alora_offsets=offsets).square().mean().backward()
    return {n: p.grad for n, p in model.named_parameters()}


def run():
    return _step(False)


def reference():
    return _step(True)
