"""Keys of one layer are passed to the next through a dictionary, not through the checkpoints."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Layer(nn.Module):
    def __init__(self, d, index, shared):
        super().__init__()
        self.index, self.shared = index, shared
        self.query, self.out = nn.Linear(d, d), nn.Linear(d, d)
        if index == 0:
            self.key = nn.Linear(d, d)

    def forward(self, x):
        if self.index == 0:
            self.shared["key"] = self.key(x)
        scores = self.query(x) @ self.shared["key"].T  # VICTIM
        return x + self.out(scores.softmax(-1) @ x)


class Model(nn.Module):
    def __init__(self, use_reentrant, d=6):
        super().__init__()
        shared, self.use_reentrant = {}, use_reentrant
        self.embed = nn.Embedding(9, d)
        self.layers = nn.ModuleList(Layer(d, index, shared) for index in range(3))

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=self.use_reentrant)  # CULPRIT
        return x


def _step(use_reentrant):
    torch.manual_seed(0)
    model = Model(use_reentrant)
    model(torch.tensor([1, 4, 7, 2])).square().mean().backward()
    return {n: p.grad for n, p in model.named_parameters()}


def run():
    return _step(True)


def reference():
    return _step(False)
