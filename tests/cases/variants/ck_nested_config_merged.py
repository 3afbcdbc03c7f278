"""Layers are selected by a nested dict that a sweep updates recursively."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def merge(into, extra):
    for key, value in extra.items():
        if isinstance(value, dict):
            merge(into.setdefault(key, {}), value)
        else:
            into[key] = value  # CULPRIT
    return into


class Ffn(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        h = self.up(x)
        if self.config["ffn"]["gate"]:
            h = h * torch.sigmoid(h)  # VICTIM
        return self.down(h)


def go(early):
    torch.manual_seed(0)
    config = {"ffn": {"gate": True, "drop": 0.0}, "name": "base"}
    net = Ffn(config)
    loss = checkpoint(net, torch.randn(3, 4), use_reentrant=False).sum()
    if early:
        merge(config, {"ffn": {"gate": False}})  # ALSO
    loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
