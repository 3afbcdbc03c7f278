"""A network whose activations are rounded, with hand-written gradients."""

import torch
from torch import nn


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, levels):
        ctx.save_for_backward(x)
        q = torch.round(x.clamp(-1, 1) * levels) / levels
        return q

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        inside = (x.abs() <= 1).to(grad.dtype)
        return grad * inside, None


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, grad):
        x, s = ctx.saved_tensors
        return grad * (s + x * s * (1 - s))


class Layer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.step = nn.Parameter(torch.ones(outputs))

    def forward(self, x):
        h = self.linear(x)
        h = Swish.apply(h)
        scaled = h * self.step
        return Round.apply(scaled, 8)


def main():
    torch.manual_seed(0)
    layers = nn.ModuleList([Layer(4, 8), Layer(8, 8)])
    head = nn.Linear(8, 2)
    parameters = [*layers.parameters(), *head.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for _ in range(4):
        x = torch.randn(10, 4)
        target = (x[:, :2] > 0).float()
        h = x
        for layer in layers:
            h = layer(h)
        logits = head(h)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, target)
        loss = loss + 0.01 * sum((layer.step**2).sum() for layer in layers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {"head": head.weight, **dict(layers.named_parameters())}
