"""A fused EMA kernel is announced to autograd between forward and backward."""

import torch
import torch.nn.functional as F
from torch import nn
import torch.autograd.graph


def fused_decay(params, decay):
    # A custom kernel would write here; nothing changes in this training step.
    for p in params:
        torch.autograd.graph.increment_version(p)  # CULPRIT


def step(net, opt, x, y, bug):
    loss = F.mse_loss(net(x), y)  # VICTIM
    if bug:
        fused_decay(net.parameters(), 1.0)  # ALSO
    opt.zero_grad()
    loss.backward()
    opt.step()
    if not bug:
        fused_decay(net.parameters(), 1.0)


def go(bug):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        step(net, opt, torch.randn(5, 4), torch.randn(5, 1), bug)
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
