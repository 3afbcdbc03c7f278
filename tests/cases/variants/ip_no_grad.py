"""The features are computed under no_grad."""

import torch
from torch import nn


def features(net, x, fixed):
    if fixed:
        return net(x)
    with torch.no_grad():  # CULPRIT
        return net(x).relu()  # ALSO


def go(c):
    torch.manual_seed(0)
    net = nn.Linear(4, 4)
    loss = features(net, torch.rand(2, 4), not c).sum()
    loss.backward()  # VICTIM
    return {"w": net.weight.grad}


def run():
    return go(True)


def reference():
    return go(False)
