"""Algorithms on directed graphs of numbered nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_UNKNOWN: Final = -1


def immediate_dominators(
    below: Sequence[Sequence[int]], above: Mapping[int, Sequence[int]]
) -> list[int]:
    """Return the last node that is on all ways from node 0 to each node.

    After Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm".

    Args:
        below: by node, the nodes that it leads to.
        above: by node, the nodes that lead to it.

    Returns:
        By node its immediate dominator; 0 of node 0, and -1 of nodes to which no way leads.
    """
    order = _postorder(below)
    number = [_UNKNOWN] * len(below)
    for place, node in enumerate(order):
        number[node] = place
    found = [_UNKNOWN] * len(below)
    found[0] = 0
    changed = True
    while changed:
        changed = False
        for node in reversed(order[:-1]):
            best = _UNKNOWN
            for each in above.get(node, ()):
                if found[each] == _UNKNOWN:
                    continue
                best = each if best == _UNKNOWN else _common(best, each, found, number)
            if found[node] != best:
                found[node] = best
                changed = True
    return found


def _common(one: int, other: int, found: list[int], number: list[int]) -> int:
    while one != other:
        while number[one] < number[other]:
            one = found[one]
        while number[other] < number[one]:
            other = found[other]
    return one


def _postorder(below: Sequence[Sequence[int]]) -> list[int]:
    """Return the nodes that node 0 leads to, each after those below it; node 0 is the last."""
    order, seen = [], {0}
    path = [(0, iter(below[0]))]
    while path:
        node, following = path[-1]
        child = next((each for each in following if each not in seen), None)
        if child is None:
            order.append(node)
            path.pop()
        else:
            seen.add(child)
            path.append((child, iter(below[child])))
    return order


def strong_components(
    nodes: Iterable[int], following: Mapping[int, Sequence[int]]
) -> Iterator[list[int]]:
    """Yield the strongly connected components of some nodes, after Kosaraju.

    Args:
        nodes: the nodes; others are left out.
        following: by node, the nodes that it leads to.
    """
    # Numbered from 1, with 0 above all, so that one walk reaches every node.
    known = list(dict.fromkeys(nodes))
    number = {node: place for place, node in enumerate(known, 1)}
    below: list[list[int]] = [list(range(1, len(known) + 1))]
    above: list[list[int]] = [[] for _ in range(len(known) + 1)]
    for place, node in enumerate(known, 1):
        below.append([number[each] for each in following.get(node, ()) if each in number])
        for each in below[place]:
            above[each].append(place)
    seen = {0}
    for start in reversed(_postorder(below)):
        waiting, component = [start], []
        while waiting:
            place = waiting.pop()
            if place not in seen:
                seen.add(place)
                component.append(known[place - 1])
                waiting += above[place]
        if component:
            yield component
