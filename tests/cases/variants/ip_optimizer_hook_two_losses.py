"""Optimizer fused into backward by post-accumulate-grad hooks; the model has two losses."""

import torch
import torch.nn.functional as F
from torch import nn


def attach(model, lr):
    def hook(param):
        with torch.no_grad():
            param.add_(param.grad, alpha=-lr)  # CULPRIT
        param.grad = None

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)  # ALSO


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
        self.a, self.b = nn.Linear(8, 3), nn.Linear(8, 1)

    def forward(self, x):
        h = self.body(x)  # VICTIM
        return self.a(h), self.b(h)


def go(bug):
    torch.manual_seed(0)
    net = TwoHeads()
    attach(net, 0.1)
    x, y = torch.randn(6, 5), torch.randint(0, 3, (6,))
    logits, value = net(x)
    ce, reg = F.cross_entropy(logits, y), value.pow(2).mean()
    if bug:
        ce.backward(retain_graph=True)
        reg.backward()
    else:
        (ce + reg).backward()
    return {n: p.detach().clone() for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
