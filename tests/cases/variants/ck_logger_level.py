"""Extra statistics enter the graph at log level DEBUG; the level is restored before backward."""
import logging

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

log = logging.getLogger("tiny.model")


class Verbose:
    def __init__(self, logger, level):
        self.logger, self.level = logger, level

    def __enter__(self):
        self.before = self.logger.level
        self.logger.setLevel(self.level)

    def __exit__(self, *error):
        self.logger.setLevel(self.before)


class Block(nn.Module):
    def __init__(self, dim=5):
        super().__init__()
        self.fc, self.penalty = nn.Linear(dim, dim), []

    def forward(self, x):
        h = torch.tanh(self.fc(x))
        if log.isEnabledFor(logging.DEBUG):
            h = h * (1 + 1e-3 * h.square().mean())  # VICTIM
        return h


def go(inside):
    torch.manual_seed(0)
    net = Block()
    with Verbose(log, logging.DEBUG):  # CULPRIT
        loss = checkpoint(net, torch.randn(3, 5), use_reentrant=False).sum()
        if inside:
            loss.backward()
    if not inside:
        loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
