"""Command-line overrides are applied to the live configuration in a loop with setattr."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Config:
    def __init__(self):
        self.activation = "relu"
        self.width = 8


def apply_overrides(config, overrides):
    for key, value in overrides.items():
        setattr(config, key, value)  # CULPRIT


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.up, self.down = nn.Linear(4, config.width), nn.Linear(config.width, 4)

    def act(self, x):
        return getattr(torch, self.config.activation)(x)  # VICTIM

    def forward(self, x):
        return self.down(self.act(self.up(x)) * 2)


class Trial:
    def __init__(self, overrides):
        torch.manual_seed(0)
        self.config, self.overrides = Config(), overrides
        self.net = Mlp(self.config)

    def run(self, early):
        loss = checkpoint(self.net, torch.randn(3, 4), use_reentrant=False).sum()
        if early:
            apply_overrides(self.config, self.overrides)  # ALSO
        loss.backward()
        return {n: p.grad for n, p in self.net.named_parameters()}


def run():
    return Trial({"activation": "cos"}).run(True)


def reference():
    return Trial({"activation": "cos"}).run(False)
