"""Freezing the backbone by name freezes all parameters: every name starts with the empty prefix."""
import torch
from torch import nn


class Tuned(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.head = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.head(self.backbone(x).tanh())


def freeze(model, prefix):
    for name, parameter in model.named_parameters():
        if name.startswith(prefix):
            parameter.requires_grad = False  # CULPRIT


def go(prefix):
    torch.manual_seed(0)
    model = Tuned()
    freeze(model, prefix)
    loss = model(torch.randn(3, 4)).square().mean()
    loss.backward()  # VICTIM
    return {n: p.grad for n, p in model.named_parameters()}


def run():
    return go("")


def reference():
    return go("backbone")
