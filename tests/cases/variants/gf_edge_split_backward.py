"""Zero-bubble pipeline: input gradients first, weight gradients later, from gradient edges."""

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge


class Stage:
    def __init__(self, module):
        self.module = module

    def forward(self, x):
        self.x = x.detach().requires_grad_()
        self.y = self.module(self.x)  # VICTIM
        self.edge = get_gradient_edge(self.y)
        return self.y

    def backward_input(self, grad, bug):
        (gx,) = torch.autograd.grad(self.edge, self.x, grad, retain_graph=not bug)  # CULPRIT
        return gx

    def backward_weight(self, grad):
        params = list(self.module.parameters())
        for p, g in zip(params, torch.autograd.grad(self.edge, params, grad)):
            p.grad = g


def go(bug):
    torch.manual_seed(0)
    stages = [Stage(nn.Sequential(nn.Linear(4, 4), nn.Tanh())) for _ in range(2)]
    h = torch.randn(3, 4)
    for s in stages:
        h = s.forward(h)
    grad = torch.ones_like(h)
    pending = []
    for s in reversed(stages):
        pending.append((s, grad))
        grad = s.backward_input(grad, bug)  # ALSO
    for s, g in pending:
        s.backward_weight(g)
    return {f"{i}.{n}": p.grad for i, s in enumerate(stages) for n, p in s.module.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
