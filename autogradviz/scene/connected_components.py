"""Connected components: the separate graphs of one recording (steps, micro-batches, losses)."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from autogradviz.scene.fold_leaves_and_views import FoldedGraph

MIN_NODES: Final = 3
"""Smaller components get no group."""

MIN_STEPS: Final = 2


class GraphPlace(NamedTuple):
    """The step of a node, and the number of its graph in the step."""

    step: int | None  # None if the graphs are not divided into steps
    number: int  # from 1; 0 if the graph needs no group of its own


def place_graphs(folded: FoldedGraph, step_of: Sequence[int | None]) -> list[GraphPlace]:
    """Return the place of each node.

    A graph belongs to the step in which its last node was created: that of the loss, on which
    backward is called. If it uses the same modules in several steps, as a sum of losses that is
    carried on, each of its nodes belongs to the step that created it.

    Only graphs that use the same modules are numbered, within each step by the order of their last
    nodes there: otherwise the group of such a module would contain nodes of several graphs. If
    they are of several steps, all nodes are divided into steps.

    Args:
        folded: the drawn graph.
        step_of: by drawn node, the number of the step that created it, None if it is unknown.
    """
    component = representatives(
        len(folded.nodes), ((source, target) for source, target, _ in folded.edges)
    )
    sizes = Counter(component)
    users: dict[str, set[int]] = defaultdict(set)
    for index, root in enumerate(component):
        if sizes[root] >= MIN_NODES:
            users[folded.nodes[index].module].add(root)
    shared = {root for name, roots in users.items() if name and len(roots) > 1 for root in roots}
    step_of = _steps_of_graphs(folded, component, step_of)
    used_in = {step_of[index] for index, root in enumerate(component) if root in shared}
    if len(used_in) < MIN_STEPS or None in step_of:
        step_of = [None] * len(folded.nodes)
    last: dict[tuple[int | None, int], int] = {}  # of each graph in each step
    for index, root in enumerate(component):
        if root in shared:
            last[step_of[index], root] = index
    count: Counter[int | None] = Counter()
    numbers: dict[tuple[int | None, int], int] = {}
    for place in sorted(last, key=last.__getitem__):
        count[place[0]] += 1
        numbers[place] = count[place[0]]
    return [
        GraphPlace(
            step, 0 if step is not None and count[step] == 1 else numbers.get((step, root), 0)
        )
        for step, root in zip(step_of, component, strict=True)
    ]


def _steps_of_graphs(
    folded: FoldedGraph, component: Sequence[int], step_of: Sequence[int | None]
) -> list[int | None]:
    """Return the steps of the nodes' graphs; of graphs that are carried on, those of the nodes."""
    last = {root: step_of[index] for index, root in enumerate(component)}
    first: dict[tuple[int, str], int | None] = {}  # step in which a graph first uses a module
    carried = set()
    for index, root in enumerate(component):
        module = folded.nodes[index].module
        if module and first.setdefault((root, module), step_of[index]) != step_of[index]:
            carried.add(root)
    return [
        step if root in carried else last[root]
        for step, root in zip(step_of, component, strict=True)
    ]


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
