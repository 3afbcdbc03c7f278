"""First-order MAML: the fast weights are set through .data inside the graph."""
import torch
from torch import nn


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(1, 12), nn.Linear(12, 1)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))  # VICTIM


def inner(model, x, y, lr):
    loss = (model(x) - y).pow(2).mean()
    grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    for p, g in zip(model.parameters(), grads):
        p.data -= lr * g.data  # CULPRIT
    return loss


def inner_out_of_place(model, x, y, lr):
    loss = (model(x) - y).pow(2).mean()
    torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    return loss


def go(step):
    torch.manual_seed(0)
    model = Learner()
    x = torch.linspace(-1, 1, 10)[:, None]
    total = sum(step(model, x, torch.sin(k * x), 0.5) for k in (1.0, 3.0))
    total.backward()
    return {n: p.grad for n, p in model.named_parameters()}


def run():
    return go(inner)


def reference():
    return go(inner_out_of_place)
