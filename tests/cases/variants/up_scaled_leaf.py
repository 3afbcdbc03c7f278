"""`torch.randn(..., requires_grad=True) * 0.01` is not a leaf; its .grad stays None."""

import math

import torch
import torch.nn.functional as F


def init(n, m, bug):
    if bug:
        w = torch.randn(n, m, requires_grad=True) / math.sqrt(n)  # CULPRIT
    else:
        w = (torch.randn(n, m) / math.sqrt(n)).requires_grad_()
    return w, torch.zeros(m, requires_grad=True)


def model(xb, w, b):
    return (xb @ w + b).log_softmax(-1)


def go(bug):
    torch.manual_seed(0)
    w, b = init(8, 3, bug)
    for _ in range(2):
        x, y = torch.randn(10, 8), torch.randint(0, 3, (10,))
        loss = F.nll_loss(model(x, w, b), y)
        loss.backward()
        with torch.no_grad():
            w -= w.grad * 0.5  # VICTIM
            b -= b.grad * 0.5
            w.grad.zero_()
            b.grad.zero_()
    return {"w": w.grad, "b": b.grad}


def run():
    return go(True)


def reference():
    return go(False)
