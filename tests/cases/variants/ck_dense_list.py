"""DenseNet: the list of features is passed to each checkpointed layer, and grows afterwards."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class DenseLayer(nn.Module):
    def __init__(self, width, growth):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(width), nn.Linear(width, growth)

    def forward(self, features):
        x = torch.cat(list(features), -1)  # VICTIM
        return torch.relu(self.fc(self.norm(x[..., : self.fc.in_features])) * x.mean(-1, keepdim=True))


class DenseBlock(nn.Module):
    def __init__(self, width=4, growth=3, depth=3, snapshot=False):
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(width + i * growth, growth) for i in range(depth))
        self.snapshot = snapshot

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            given = tuple(features) if self.snapshot else features
            new = checkpoint(layer, given, use_reentrant=False)
            self._keep(features, new)  # ALSO
        return torch.cat(features, -1)

    @staticmethod
    def _keep(features, new):
        features.append(new)  # CULPRIT


def go(snapshot):
    torch.manual_seed(0)
    net = DenseBlock(snapshot=snapshot)
    net(torch.randn(5, 4, requires_grad=True)).pow(2).sum().backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(False)


def reference():
    return go(True)
