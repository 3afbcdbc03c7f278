"""A clean-up clears the hooks of a module before backward."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def doubled(module, args, out):
    return torch.sin(out) * 2.0  # VICTIM


def clean_up(net):
    for module in net.modules():
        module._forward_hooks.clear()  # CULPRIT


def go(early):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh())
    net[1].register_forward_hook(doubled)
    loss = checkpoint(net, torch.randn(3, 4), use_reentrant=False).square().sum()
    if early:
        clean_up(net)  # ALSO
    loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
