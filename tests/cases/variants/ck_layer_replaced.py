"""A layer of a Sequential is replaced (fused) before backward."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def fold_dropout(sequential):
    for i, layer in enumerate(sequential):
        if isinstance(layer, nn.Hardswish):
            sequential[i] = nn.Identity()  # CULPRIT


class Net(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(dim, dim), nn.Hardswish(), nn.Linear(dim, dim))

    def forward(self, x):
        return checkpoint(self.body, x, use_reentrant=False)  # VICTIM


def export(net, x):
    fold_dropout(net.body)  # ALSO
    with torch.no_grad():
        return net(x).shape


def go(early):
    torch.manual_seed(0)
    net, x = Net(), torch.randn(3, 6)
    loss = net(x).pow(2).sum()
    if early:
        export(net, x)  # ALSO
    loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
