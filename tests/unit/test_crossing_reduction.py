"""Number of edge crossings, compared with Graphviz's ``dot`` on the same graphs."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess

import pytest
from make_scene import Box, scene_of

from autogradviz.scene.layout.coordinates import place

GRAPHS = 20


def random_graph(seed):
    """Return the targets of each node of a model-like graph: chains that join."""
    rng = random.Random(seed)
    count = rng.randint(18, 40)
    targets = {1: []}
    for node in range(2, count + 1):
        near = range(max(1, node - rng.choice([3, 6, 9])), node)
        targets[node] = sorted(rng.sample(near, min(len(near), rng.choice([1, 1, 2, 2, 3]))))
    return targets


def edges_of(targets):
    return [(node, target) for node in targets for target in targets[node]]


def our_lines(targets):
    """Return our line of each edge, through the cells of its rows."""
    ops = itertools.cycle(["mm", "mul", "relu", "exp"])
    scene = scene_of(*(Box(node, next(ops), to=to) for node, to in targets.items()))
    (group,) = scene.groups
    centers = {b.ref: (b.x + b.width / 2, b.y) for b in place(scene, {0}).boxes if b.kind == "node"}
    numbers = {node.index: node.sequence_nr for node in scene.nodes}
    rows = {cell: at for at, row in enumerate(group.rows) for cell in row}
    order = {cell: at for row in group.rows for at, cell in enumerate(row)}
    lines = {}
    for link in group.links:
        ends = [group.cells[link.path[0]].ref, group.cells[link.path[-1]].ref]
        points = [(order[cell], rows[cell]) for cell in link.path]
        lines[numbers[ends[0]], numbers[ends[1]]] = points
    assert len(centers) == len(targets)
    return lines


def dot_lines(targets):
    """Return the line of each edge in the output of dot."""
    source = "digraph { splines=polyline; node [shape=box, width=1.6, height=.3];"
    source += "".join(f"{node} -> {target};" for node, target in edges_of(targets)) + "}"
    done = subprocess.run(
        ["dot", "-Tplain"], input=source, text=True, capture_output=True, check=True
    )
    centers, lines = {}, {}
    for line in done.stdout.splitlines():
        kind, *words = line.split()
        if kind == "node":
            centers[words[0]] = (float(words[1]), float(words[2]))
        elif kind == "edge":
            numbers = list(map(float, words[3 : 3 + 2 * int(words[2])]))
            points = list(zip(numbers[::2], numbers[1::2], strict=True))
            ends = words[0], words[1]
            lines[int(ends[0]), int(ends[1])] = [centers[ends[0]], *points[::3], centers[ends[1]]]
    return lines


def crosses(a, b, c, d):
    """Return whether two line segments cross between their ends."""

    def side(p, q, r):
        return (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])

    return side(a, b, c) * side(a, b, d) < -1e-9 and side(c, d, a) * side(c, d, b) < -1e-9


def count_crossings(lines):
    total = 0
    for (ends, line), (others, other) in itertools.combinations(lines.items(), 2):
        if set(ends) & set(others):
            continue
        total += sum(
            crosses(a, b, c, d)
            for a, b in itertools.pairwise(line)
            for c, d in itertools.pairwise(other)
        )
    return total


def test_crossings_are_counted():
    assert count_crossings({(1, 2): [(0, 0), (1, 1)], (3, 4): [(1, 0), (0, 1)]}) == 1
    assert count_crossings({(1, 2): [(0, 0), (0, 1)], (3, 4): [(1, 0), (1, 1)]}) == 0
    assert count_crossings({(1, 2): [(0, 0), (1, 1)], (1, 4): [(1, 0), (0, 1)]}) == 0


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_layout_has_about_as_few_crossings_as_dot():
    ours = theirs = 0
    for seed in range(GRAPHS):
        targets = random_graph(seed)
        mine, its = our_lines(targets), dot_lines(targets)
        assert set(mine) == set(its) == set(edges_of(targets))
        ours += count_crossings(mine)
        theirs += count_crossings(its)
    assert theirs > 100
    assert ours <= 1.25 * theirs, (ours, theirs)
