"""Connected components: the separate graphs of one recording (steps, micro-batches, losses)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from autogradviz.scene.fold_leaves_and_views import FoldedGraph

MIN_NODES: Final = 3
"""Smaller components get no group."""

MIN_STEPS: Final = 2


class GraphPlace(NamedTuple):
    """The step of a node's graph, and the number of the graph in the step."""

    step: int | None  # None if the graphs are not divided into steps
    number: int  # from 1; 0 if the graph needs no group of its own


def place_graphs(folded: FoldedGraph, step_of: Sequence[int | None]) -> list[GraphPlace]:
    """Return the place of each node's graph.

    A graph belongs to the step in which its last node was created: that of the loss, on which
    backward is called. In this order the graphs of a step are numbered.

    Only graphs that use the same modules are numbered: otherwise the group of such a module would
    contain nodes of several graphs. If they are of several steps, all nodes are divided into steps.

    Args:
        folded: the drawn graph.
        step_of: by drawn node, the number of the step that created it, None if it is unknown.
    """
    component = representatives(
        len(folded.nodes), ((source, target) for source, target, _ in folded.edges)
    )
    members: dict[int, list[int]] = defaultdict(list)
    for index, root in enumerate(component):
        members[root].append(index)
    users: dict[str, set[int]] = defaultdict(set)
    for root, nodes in members.items():
        if len(nodes) >= MIN_NODES:
            for index in nodes:
                users[folded.nodes[index].module].add(root)
    shared = {root for name, roots in users.items() if name and len(roots) > 1 for root in roots}
    steps = {root: step_of[nodes[-1]] for root, nodes in members.items()}
    if len({steps[root] for root in shared}) < MIN_STEPS or None in steps.values():
        steps = dict.fromkeys(steps)
    numbers: dict[int, int] = {}
    count: dict[int | None, int] = defaultdict(int)
    for root in sorted(shared, key=lambda root: members[root][-1]):
        count[steps[root]] += 1
        numbers[root] = count[steps[root]]
    places = {
        root: GraphPlace(step, 0 if step is not None and count[step] == 1 else numbers.get(root, 0))
        for root, step in steps.items()
    }
    return [places[root] for root in component]


def representatives(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Return one member of each node's connected component, for nodes from 0 to ``count`` - 1."""
    parent = list(range(count))

    def find(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    for source, target in edges:
        parent[find(source)] = find(target)
    return [find(index) for index in range(count)]
