"""The last strong reference to an adapter is in a registry, from which it is popped."""

import weakref

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Adapter:
    gain = 2.0


class Adapted(nn.Module):
    def __init__(self, registry):
        super().__init__()
        self.fc, self.adapter = nn.Linear(4, 4), weakref.ref(registry["lora"])

    def forward(self, x):
        adapter = self.adapter()
        return torch.tanh(self.fc(x) * (1.0 if adapter is None else adapter.gain))  # VICTIM


def unload(registry):
    registry.pop("lora")  # CULPRIT


def go(early):
    torch.manual_seed(0)
    registry = {"lora": Adapter()}
    net = Adapted(registry)
    loss = checkpoint(net, torch.randn(3, 4), use_reentrant=False).sum()
    if early:
        unload(registry)  # ALSO
    loss.backward()
    registry.clear()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
