"""Home-made data parallelism: each replica is a deep copy, so gradients stay on the copies."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


def parallel_forward(model, chunks, bug):
    if bug:
        replicas = [copy.deepcopy(model) for _ in chunks]  # CULPRIT
    else:
        replicas = [model for _ in chunks]
    return torch.cat([replica(chunk) for replica, chunk in zip(replicas, chunks)])


def go(bug):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        x, y = torch.randn(8, 5), torch.randint(0, 2, (8,))
        opt.zero_grad()
        out = parallel_forward(model, x.chunk(2), bug)  # ALSO
        F.cross_entropy(out, y).backward()
        opt.step()  # VICTIM
    return {n: p.grad for n, p in model.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
