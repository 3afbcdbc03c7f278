"""A node prehook of a logging tool clips gradients in place inside a residual branch."""

import torch
from torch import nn


def log_norms(tensor, log, bug):
    def prehook(grads):
        log.append(float(grads[0].norm()))
        if bug:
            grads[0].clamp_(-0.01, 0.01)  # CULPRIT

    tensor.grad_fn.register_prehook(prehook)  # ALSO


class Residual(nn.Module):
    def __init__(self, bug):
        super().__init__()
        self.fc, self.log, self.bug = nn.Linear(5, 5), [], bug

    def forward(self, x):
        branch = self.fc(x)
        log_norms(branch, self.log, self.bug)
        return x + branch


def go(bug):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), Residual(bug), nn.Linear(5, 1))
    net(torch.randn(4, 3)).sum().backward()  # VICTIM
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
