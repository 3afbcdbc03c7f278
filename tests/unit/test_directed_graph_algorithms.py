"""Algorithms on directed graphs, compared with those of networkx."""

import random

import networkx as nx
import pytest

from autogradviz.support.directed_graph_algorithms import immediate_dominators, strong_components


def random_graph(seed):
    numbers = random.Random(seed)
    nodes = numbers.randrange(2, 30)
    pairs = {(numbers.randrange(nodes), numbers.randrange(nodes)) for _ in range(2 * nodes)}
    return nodes, sorted(pair for pair in pairs if pair[0] != pair[1])


@pytest.mark.parametrize("seed", range(200))
def test_immediate_dominators_are_those_of_networkx(seed):
    nodes, edges = random_graph(seed)
    below = [[b for a, b in edges if a == node] for node in range(nodes)]
    above = {node: [a for a, b in edges if b == node] for node in range(1, nodes)}
    graph = nx.DiGraph(edges)
    graph.add_node(0)
    found = nx.immediate_dominators(graph, 0)
    known = {node: found.get(node, -1) or 0 for node in range(1, nodes)}
    assert dict(enumerate(immediate_dominators(below, above))) == {0: 0, **known}


@pytest.mark.parametrize("seed", range(100))
def test_strong_components_are_those_of_networkx(seed):
    nodes, edges = random_graph(seed)
    chosen = [node for node in range(nodes) if node % 5]
    following = {node: [b for a, b in edges if a == node] for node in range(nodes)}
    graph = nx.DiGraph(edges).subgraph(chosen).copy()
    graph.add_nodes_from(chosen)
    found = {frozenset(each) for each in strong_components(chosen, following)}
    assert found == {frozenset(each) for each in nx.strongly_connected_components(graph)}
