"""Message passing that adds messages into the node features in place, layer after layer."""

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.msg = nn.Linear(d, d)

    def forward(self, h, src, dst, bug):
        m = torch.relu(self.msg(h))[src]  # VICTIM
        if bug:
            h.index_add_(0, dst, m)  # CULPRIT
            return h
        return h.index_add(0, dst, m)


class GNN(nn.Module):
    def __init__(self, d=5, depth=2):
        super().__init__()
        self.inp = nn.Linear(3, d)
        self.layers = nn.ModuleList(Layer(d) for _ in range(depth))
        self.out = nn.Linear(d, 1)

    def forward(self, x, edges, bug):
        h = self.inp(x)
        for layer in self.layers:
            h = layer(h, edges[0], edges[1], bug)  # ALSO
        return self.out(h).squeeze(-1)


def go(bug):
    torch.manual_seed(0)
    net = GNN()
    x, edges = torch.randn(6, 3), torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
    loss = F.mse_loss(net(x, edges, bug), torch.ones(6))
    loss.backward()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
