"""The exponentials of all other samples underflow, and their sum is the argument of a logarithm."""

import torch
from torch import nn

FOUND = True


def train(eps):
    torch.manual_seed(0)
    model = nn.Linear(3, 2, bias=False)
    features = 30 * nn.functional.normalize(model(torch.tensor([[1.0, 0, 0], [0, 9, 1]])), dim=1)
    scores = features @ features.T
    shifted = scores - scores.max(dim=1, keepdim=True).values.detach()
    weights = torch.exp(shifted) * (1 - torch.eye(2))
    weights += eps * torch.eye(2)
    total = torch.log(weights.sum(1))  # CULPRIT
    (total - shifted[:, 1]).mean().backward()
    return [p.grad.clone().isfinite() for p in model.parameters()]


def run():
    return train(eps=0.0)


def reference():
    return train(eps=1e-6)
