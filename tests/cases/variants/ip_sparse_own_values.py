"""Edge weights are dropped through values() of a sparse matrix saved by a product."""
import torch
from torch import nn


class Graph:
    def __init__(self):
        places = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 1]])
        self.matrix = torch.sparse_coo_tensor(places, torch.rand(4) + 0.5, (3, 3)).coalesce()

    def drop(self):
        self.matrix.values().clamp_(max=0.7)  # CULPRIT


def go(early):
    torch.manual_seed(0)
    net, graph = nn.Linear(4, 2), Graph()
    loss = torch.sparse.mm(graph.matrix, net(torch.randn(3, 4))).square().sum()  # VICTIM
    if early:
        graph.drop()  # ALSO
    loss.backward()
    if not early:
        graph.drop()
    return {n: p.grad for n, p in net.named_parameters()}


def run():
    return go(True)


def reference():
    return go(False)
