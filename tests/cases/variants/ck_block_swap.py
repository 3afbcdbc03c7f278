"""Block swapping loads the weights of a block for the forward, but not for the recomputation."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, slot, d):
        super().__init__()
        self.weight = nn.Parameter(slot, requires_grad=False)
        self.lora_a = nn.Parameter(torch.randn(2, d) * 0.3)
        self.lora_b = nn.Parameter(torch.randn(d, 2) * 0.3)

    def forward(self, x):
        base = nn.functional.linear(x, self.weight)  # VICTIM
        return x + torch.tanh(base + x @ self.lora_a.t() @ self.lora_b.t())


class BlockSwap:
    def __init__(self, n, slots, d):
        self.host = [torch.randn(d, d) * 0.4 for _ in range(n)]
        self.slots = [torch.zeros(d, d) for _ in range(slots)]

    def slot_of(self, index):
        return self.slots[index % len(self.slots)]

    def swap_in(self, index):
        self.slot_of(index).data.copy_(self.host[index])  # CULPRIT


class Transformer(nn.Module):
    def __init__(self, fixed, n=4, slots=2, d=6):
        super().__init__()
        self.swap, self.fixed = BlockSwap(n, slots, d), fixed
        self.blocks = nn.ModuleList(Block(self.swap.slot_of(i), d) for i in range(n))
        if fixed:  # driven by the block itself: fires in the recompute too
            for i, block in enumerate(self.blocks):
                block.register_forward_pre_hook(lambda module, args, i=i: self.swap.swap_in(i))

    def forward(self, x):
        for i, block in enumerate(self.blocks):
            if not self.fixed:
                self.swap.swap_in(i)  # ALSO
            x = checkpoint(block, x, use_reentrant=False)  # VICTIM
        return x


def _step(fixed):
    torch.manual_seed(0)
    model = Transformer(fixed)
    model(torch.randn(4, 6)).square().mean().backward()
    return {n: p.grad for n, p in model.named_parameters() if p.requires_grad}


def run():
    return _step(False)


def reference():
    return _step(True)
