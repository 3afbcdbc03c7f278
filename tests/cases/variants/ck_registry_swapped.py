"""A plug-in registers another activation under the same name before backward."""
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Registry:
    def __init__(self):
        self._known = {}

    def register(self, name):
        def decorate(function):
            self._known[name] = function  # CULPRIT
            return function

        return decorate

    def __getitem__(self, name):
        return self._known[name]


ACTIVATIONS = Registry()


@ACTIVATIONS.register("swiglu")
def swiglu(x):
    a, b = x.chunk(2, -1)
    return F.silu(a) * b  # VICTIM


def load_plugin():
    @ACTIVATIONS.register("swiglu")  # ALSO
    def fast_swiglu(x):
        a, b = x.chunk(2, -1)
        return torch.sigmoid(a) * a * b


class Mlp(nn.Module):
    def __init__(self, dim=6, act="swiglu"):
        super().__init__()
        self.up, self.down, self.act = nn.Linear(dim, 4 * dim), nn.Linear(2 * dim, dim), act

    def forward(self, x):
        return self.down(ACTIVATIONS[self.act](self.up(x)))


def go(load):
    torch.manual_seed(0)
    ACTIVATIONS.register("swiglu")(swiglu)
    net = Mlp()
    loss = checkpoint(net, torch.randn(3, 6), use_reentrant=False).pow(2).sum()
    if load:
        load_plugin()  # ALSO
    loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
