"""A GCN layer computes the adjacency from the edges of the graph; edges are dropped later."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Graph:
    def __init__(self, edges):
        self.edges = edges

    def drop(self, keep):
        self.edges = [e for i, e in enumerate(self.edges) if i % keep]  # CULPRIT


class Gcn(nn.Module):
    def __init__(self, graph, dim=3):
        super().__init__()
        self.graph, self.fc, self.w = graph, nn.Linear(dim, dim), nn.Parameter(torch.ones(12))

    def forward(self, x):
        out = self.fc(x)
        src = torch.tensor([a for a, _ in self.graph.edges])
        dst = torch.tensor([b for _, b in self.graph.edges])
        messages = out[src] * self.w[: len(src), None]  # VICTIM
        return torch.zeros_like(out).index_add(0, dst, messages)


class Loop:
    def __init__(self, augment_first):
        torch.manual_seed(0)
        self.graph = Graph([(i, (i * 2 + 1) % 5) for i in range(8)])
        self.net, self.augment_first = Gcn(self.graph), augment_first

    def epoch(self):
        loss = checkpoint(self.net, torch.randn(8, 3), use_reentrant=False).pow(2).sum()
        todo = [loss.backward, lambda: self.graph.drop(3)]
        for work in reversed(todo) if self.augment_first else todo:
            work()  # ALSO
        return {n: p.grad for n, p in self.net.named_parameters()}


def run():
    return Loop(True).epoch()


def reference():
    return Loop(False).epoch()
