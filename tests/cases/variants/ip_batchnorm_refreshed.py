"""BatchNorm: a train-mode forward runs between an eval-mode forward and its backward."""

import torch
from torch import nn


class AdaptiveEncoder(nn.Module):
    def __init__(self, d=5):
        super().__init__()
        self.stem, self.head = nn.Linear(4, d), nn.Linear(d, 2)
        self.bn = nn.BatchNorm1d(d, momentum=0.5)

    def forward(self, x):
        self.bn.eval()
        h = self.bn(self.stem(x))  # VICTIM
        return self.head(torch.tanh(h))

    @torch.no_grad()
    def refresh_statistics(self, x):
        h = self.stem(x)
        self.bn.train()
        self.bn(h)  # CULPRIT


def _step(fixed):
    torch.manual_seed(0)
    net = AdaptiveEncoder()
    source, target = torch.randn(6, 4), 5 * torch.randn(6, 4) + 2
    loss = net(source).square().mean()
    if fixed:
        loss.backward()
        net.refresh_statistics(target)
    else:
        net.refresh_statistics(target)  # ALSO
        loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return _step(False)


def reference():
    return _step(True)
