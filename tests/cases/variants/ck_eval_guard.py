"""A guard sets evaluation mode and restores only the training flag of the root module."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Evaluating:
    def __init__(self, model, deep):
        self.model, self.deep = model, deep

    def __enter__(self):
        self.before = {m: m.training for m in self.model.modules()}
        self.model.train(False)  # CULPRIT
        return self.model

    def __exit__(self, *error):
        if self.deep:
            for module, flag in self.before.items():
                module.training = flag
        else:
            self.model.training = True


class Net(nn.Module):
    def __init__(self, dim=6):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, dim), nn.Dropout(0.3), nn.Tanh()) for _ in range(2)
        )

    def forward(self, x):
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)  # VICTIM
        return x


def go(deep):
    torch.manual_seed(0)
    net, x = Net(), torch.randn(4, 6)
    loss = net(x).pow(2).mean()
    with Evaluating(net, deep) as frozen, torch.no_grad():  # ALSO
        frozen(x)
    loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
