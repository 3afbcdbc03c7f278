"""1F1B-like schedule: two micro-batches run forward before the first backward; the mask is an attribute."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.qkv, self.mask = nn.Linear(d, 3 * d), None

    def set_mask(self, mask):
        self.mask = mask  # CULPRIT

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        s = (q @ k.transpose(1, 2)).masked_fill(~self.mask[:, None], -1e9)  # VICTIM
        return torch.softmax(s, -1) @ v


def go(bug):
    torch.manual_seed(0)
    attn = Attention(6)
    batches = [(torch.randn(2, 5, 6), torch.arange(5)[None] < n) for n in (torch.tensor([[5], [3]]), torch.tensor([[2], [4]]))]
    losses = []
    for x, mask in batches:
        attn.set_mask(mask)  # ALSO
        loss = checkpoint(attn, x, use_reentrant=False).pow(2).mean()
        if bug:
            losses.append(loss)
        else:
            loss.backward()
    for loss in losses:
        loss.backward()
    return {n: p.grad for n, p in attn.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
