"""A layer is pruned by torch.nn.utils.prune between forward and backward."""
import torch
from torch import nn
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint


class Pruner:
    def __init__(self, model, amount):
        self.model, self.amount = model, amount

    def step(self):
        for module in self.model.modules():
            if isinstance(module, nn.Linear):
                prune.l1_unstructured(module, "weight", amount=self.amount)  # CULPRIT


class Net(nn.Module):
    def __init__(self, dim=5):
        super().__init__()
        self.a, self.b = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))  # VICTIM


def go(early):
    torch.manual_seed(0)
    net = Net()
    pruner = Pruner(net, 0.4)
    names = dict(net.named_parameters())
    loss = checkpoint(net, torch.randn(4, 5), use_reentrant=False).pow(2).sum()
    if early:
        pruner.step()  # ALSO
    loss.backward()
    return {n: p.grad for n, p in names.items()}


def run():
    return go(True)


def reference():
    return go(False)
