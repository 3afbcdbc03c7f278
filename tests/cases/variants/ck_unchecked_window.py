"""A window grows after the forward; the region is not checked, so a backward formula raises."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Window(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.size = nn.Linear(8, 8), 4

    def forward(self, x):
        return torch.tanh(self.fc(x)[:, : self.size])  # VICTIM


class Schedule:
    def __init__(self, window):
        self.window = window

    def step(self):
        setattr(self.window, "size", self.window.size + 1)  # CULPRIT


def go(early):
    torch.manual_seed(0)
    window = Window()
    schedule = Schedule(window)
    out = checkpoint(window, torch.randn(3, 8), use_reentrant=False, determinism_check="none")
    if early:
        schedule.step()  # ALSO
    out.square().mean().backward()
    schedule.step()
    return {n: p.grad for n, p in window.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
