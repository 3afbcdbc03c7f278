"""The block seeds its generator from a step counter that the trainer advances."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Clock:
    step = 0


def tick():
    Clock.step += 1  # CULPRIT


class NoisyTopk(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        g = torch.Generator().manual_seed(Clock.step)
        k = int(torch.randint(1, 6, (), generator=g))
        kept = self.fc(x).topk(k, -1).values  # VICTIM
        return kept.exp().sum(-1)


def go(early):
    torch.manual_seed(0)
    Clock.step = 0
    net = NoisyTopk()
    loss = checkpoint(net, torch.randn(3, 6), use_reentrant=False).sum()
    if early:
        tick()  # ALSO
    loss.backward()
    if not early:
        tick()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
