"""Folding of loops: repeated runs of nodes that the same source lines created.

No module is needed. Of a loop, the first iteration, the last one and a run of all others between
them are separate groups, so that the picture shows how iterations begin, continue and end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from autogradviz.scene.group_tree_components_and_cycles import SECTIONS, GroupTree

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

MIN_ITERATIONS: Final = 4
MIN_NODES: Final = 12
"""Loops with fewer nodes in all are drawn as they are."""

MAX_PERIODS: Final = 8
"""Number of candidates for the length of an iteration: distances to the next equal nodes."""


def fold_loops(tree: GroupTree, key_of: Callable[[int], Hashable], never_fold: set[int]) -> None:
    """Replace repeated runs of items in each group by a group of iterations.

    Args:
        tree: the root.
        key_of: returns a key that is equal for the same node of two iterations.
        never_fold: nodes whose iterations stay as they are.
    """
    for child in tree.groups:
        fold_loops(child, key_of, never_fold)
    items: list[tuple[int, GroupTree | None]] = [(node, None) for node in tree.nodes]
    items += [(group.oldest(), group) for group in tree.groups if group.kind not in SECTIONS]
    if len(items) < MIN_NODES:
        return
    items.sort(key=lambda item: item[0])
    numbers: dict[Hashable, int] = {}
    keys = []
    for at, (node, group) in enumerate(items):
        own = [node] if group is None else sorted(group.all_nodes())
        fixed = not never_fold.isdisjoint(own) or (group is not None and group.count > 1)
        key: Hashable = at if fixed else (group is None, *map(key_of, own))
        keys.append(numbers.setdefault(key, len(numbers)))
    loops = _find_loops(keys)
    if not loops:
        return
    tree.nodes, tree.groups = [], [each for each in tree.groups if each.kind in SECTIONS]
    at = 0
    for start, period, count in [*loops, (len(items), 0, 0)]:
        for node, group in items[at:start]:
            if group is None:
                tree.nodes.append(node)
            else:
                tree.groups.append(group)
        at = start + period * count
        if count:
            blocks = [items[start + i * period : start + (i + 1) * period] for i in range(count)]
            tree.groups.append(_loop(tree.path, blocks))
    tree.groups.sort(key=GroupTree.position)


def _find_loops(keys: list[int]) -> list[tuple[int, int, int]]:
    """Return start, length of an iteration and number of iterations of each loop, in order."""
    next_equal = [0] * len(keys)
    seen: dict[int, int] = {}
    for at in range(len(keys) - 1, -1, -1):
        next_equal[at] = seen.get(keys[at], 0)
        seen[keys[at]] = at
    loops = []
    at = 0
    while at < len(keys):
        best = (0, 0)  # items covered, minus the period
        other = at
        for _ in range(MAX_PERIODS):
            other = next_equal[other]
            if not other:
                break
            period, end = other - at, other
            while end < len(keys) and keys[end] == keys[end - period]:
                end += 1
            count = (end - at) // period
            if count >= MIN_ITERATIONS and count * period >= MIN_NODES:
                best = max(best, (count * period, -period))
        covered, period = best[0], -best[1]
        if covered:
            loops.append((at, period, covered // period))
            at += covered
        else:
            at += 1
    return loops


def _loop(path: str, blocks: list[list[tuple[int, GroupTree | None]]]) -> GroupTree:
    """Return the group of a loop."""
    parts = [
        GroupTree(
            "iteration",
            path,
            nodes=[node for node, group in block if group is None],
            groups=[group for _, group in block if group is not None],
            label=f"iteration {number:,}",
        )
        for number, block in enumerate(blocks, 1)
    ]
    label = f"iterations 2–{len(parts) - 1:,}"
    rest = GroupTree("repeat", path, groups=parts[1:-1], label=label, count=len(parts) - 2)
    return GroupTree("repeat", path, groups=[parts[0], rest, parts[-1]], count=len(parts))
