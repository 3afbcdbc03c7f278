"""A sparse adjacency matrix shares memory with the edge-weight tensor of its constructor."""

import torch
from torch import nn


class DynamicGraph:
    """The weights of edges decay over time."""

    def __init__(self, edge_index, edge_weight, nodes, inplace):
        self.edge_index, self.edge_weight, self.nodes = edge_index, edge_weight, nodes
        self.inplace = inplace

    def adjacency(self):
        size = (self.nodes, self.nodes)
        return torch.sparse_coo_tensor(self.edge_index, self.edge_weight, size)  # ALSO

    def age(self, decay):
        if self.inplace:
            self.edge_weight.mul_(decay)  # CULPRIT
        else:
            self.edge_weight = self.edge_weight * decay


class GraphConv(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.lin = nn.Linear(d_in, d_out)

    def forward(self, x, adjacency):
        return torch.sparse.mm(adjacency, self.lin(x))  # VICTIM


class GCN(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.conv1, self.conv2 = GraphConv(d, d), GraphConv(d, 2)

    def forward(self, x, graph):
        adjacency = graph.adjacency()
        return self.conv2(torch.tanh(self.conv1(x, adjacency)), adjacency)


def train_snapshot(model, graph, x, y):
    loss = nn.functional.cross_entropy(model(x, graph), y)
    graph.age(torch.tensor([1.0, 0.9, 0.5, 0.9, 0.2]))  # ALSO
    loss.backward()


def _step(inplace):
    torch.manual_seed(0)
    edge_index = torch.tensor([[0, 1, 2, 3, 3], [1, 2, 3, 0, 1]])
    graph = DynamicGraph(edge_index, torch.rand(5) + 0.5, 4, inplace)
    model = GCN()
    train_snapshot(model, graph, torch.randn(4, 4), torch.tensor([0, 1, 1, 0]))
    return {n: p.grad for n, p in model.named_parameters()}


def run():
    return _step(True)


def reference():
    return _step(False)
