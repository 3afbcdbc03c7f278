"""Averaged weights are loaded to log a validation score before backward, and are not removed."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Average:
    def __init__(self, model, decay=0.5):
        self.shadow = {n: p.detach().clone() * decay for n, p in model.named_parameters()}
        self.backup = {}

    def store(self, model):
        self.backup = {n: p.detach().clone() for n, p in model.named_parameters()}

    def copy_to(self, model):
        for name, p in model.named_parameters():
            p.data.copy_(self.shadow[name])  # CULPRIT

    def restore(self, model):
        for name, p in model.named_parameters():
            p.data.copy_(self.backup[name])


def validate(model, average, x):
    average.store(model)
    average.copy_to(model)  # ALSO
    with torch.no_grad():
        score = model(x).mean()
    return float(score)


class Net(nn.Module):
    def __init__(self, dim=5):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, dim), nn.Tanh())

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False)  # VICTIM


def go(early):
    torch.manual_seed(0)
    net, x = Net(), torch.randn(4, 5)
    average = Average(net)
    loss = net(x).pow(2).sum()
    if early:
        validate(net, average, x)  # ALSO
    loss.backward()
    if not early:
        validate(net, average, x)
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
