"""The model is cast for export before the backward of its loss."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(dim, dim), nn.GELU()) for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)  # VICTIM
        return x


def save_checkpoint(net):
    net.double()  # CULPRIT
    return {k: v.clone() for k, v in net.state_dict().items()}


def go(early):
    torch.manual_seed(0)
    net = Net()
    loss = net(torch.randn(3, 6)).square().mean()
    if early:
        save_checkpoint(net)  # ALSO
    loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
