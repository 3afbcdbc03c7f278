"""A hook reads the saved result of a node before the node; checkpoint provides it only once."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Watched(nn.Module):
    def __init__(self, watch):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.watch, self.seen = watch, []

    def look(self, node):
        return lambda gradient: self.seen.append(float(node._saved_result.mean()))  # CULPRIT

    def forward(self, x):
        h = torch.sigmoid(self.fc(x))  # VICTIM
        if self.watch:
            h.register_hook(self.look(h.grad_fn))  # ALSO
        return h * 2


def go(watch):
    torch.manual_seed(0)
    net = Watched(watch)
    x = torch.rand(3, 4, requires_grad=True)
    checkpoint(net, x, use_reentrant=False).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
