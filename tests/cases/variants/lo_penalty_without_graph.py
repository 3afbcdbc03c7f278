"""A gradient penalty whose gradients were computed without create_graph."""
import torch
from torch import nn


def slope(critic, x, create_graph):
    score = critic(x).sum()
    (grad,) = torch.autograd.grad(score, x, create_graph=create_graph)  # CULPRIT
    return (grad.norm(dim=1) - 1).square().mean()


def go(create_graph):
    torch.manual_seed(0)
    critic = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
    x = torch.randn(5, 4, requires_grad=True)
    slope(critic, x, create_graph).backward()  # VICTIM
    return {n: p.grad for n, p in critic.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
