"""A fused cross-entropy kernel writes the gradient over its input, unknown to autograd."""

import numpy as np
import torch
from torch import nn


def cross_entropy_kernel(x_ptr, y_ptr):
    loss = 0.0
    n = len(x_ptr)
    for row, target in zip(x_ptr, y_ptr):
        e = np.exp(row - row.max())
        prob = e / e.sum()
        loss -= np.log(prob[target])
        prob[target] -= 1
        row[:] = prob / n  # CULPRIT
    return loss / n


class FusedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, target, own_buffer):
        buffer = logits.detach().clone() if own_buffer else logits.detach()
        loss = cross_entropy_kernel(buffer.numpy(), target.numpy())  # ALSO
        ctx.save_for_backward(buffer)
        return logits.new_tensor(loss)

    @staticmethod
    def backward(ctx, grad):
        (dlogits,) = ctx.saved_tensors
        return grad * dlogits, None, None


class SoftLabels(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))

    def forward(self, x):
        return torch.softmax(3 * self.net(x), dim=-1)  # VICTIM


def _step(fixed):
    torch.manual_seed(0)
    model = SoftLabels()
    p = model(torch.randn(5, 6))
    loss = FusedCrossEntropy.apply(p, torch.tensor([0, 3, 1, 1, 2]), fixed)  # ALSO
    loss.backward()
    return {n: q.grad for n, q in model.net.named_parameters()}


def run():
    return _step(False)


def reference():
    return _step(True)
