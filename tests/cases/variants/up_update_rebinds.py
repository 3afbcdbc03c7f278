"""Manual SGD that rebinds the weight: in the next iteration it is not a leaf."""

import torch


def go(bug):
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 20)
    y = torch.sin(3 * x)
    a = torch.randn((), requires_grad=True)
    b = torch.randn((), requires_grad=True)
    lr = 1e-2
    for t in range(3):
        y_pred = a + b * x
        loss = (y_pred - y).pow(2).sum()
        loss.backward()
        if bug:
            a = a - lr * a.grad  # CULPRIT
            b = b - lr * b.grad  # ALSO
        else:
            with torch.no_grad():
                a -= lr * a.grad
                b -= lr * b.grad
                a.grad = b.grad = None
    return {"a": a.detach(), "b": b.detach()}


def run():
    return go(True)


def reference():
    return go(False)
