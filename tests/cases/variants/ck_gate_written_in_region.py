"""A checkpointed block adds its offset in place to an activation saved by tanh and by a layer."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Gated(nn.Module):
    def __init__(self, dim, in_place):
        super().__init__()
        self.gate, self.up, self.in_place = nn.Linear(dim, dim), nn.Linear(dim, dim), in_place
        self.offset = nn.Buffer(torch.ones(dim))

    def forward(self, x):
        gate = torch.tanh(self.gate(x))  # VICTIM
        h = self.up(gate)
        if self.in_place:
            gate += self.offset  # CULPRIT
        else:
            gate = gate + self.offset
        # Unsaved tensors may be written: sums and products with numbers save no tensor.
        h = h + 1
        h += gate
        return torch.relu_(h).mul(2.0).exp()


def go(in_place):
    torch.manual_seed(0)
    net = nn.Sequential(*[Gated(6, in_place) for _ in range(2)])
    x = torch.randn(3, 6)
    for layer in net:
        x = checkpoint(layer, x, use_reentrant=False)
    x.sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
