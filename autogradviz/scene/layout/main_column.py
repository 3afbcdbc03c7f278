"""The longest path through a group: its main column.

``assets/viewer/layout/main_column.js`` does the same computation in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autogradviz.scene.schema import SceneGroup


def longest_path(group: SceneGroup) -> set[int]:
    """Return the cells of a longest path from the bottom of a group to its top.

    Of several longest paths, return the one in the middle.
    """
    count = len(group.cells)
    position = [0] * count
    for row in group.rows:
        for i, cell in enumerate(row):
            position[cell] = i
    uppers: list[list[int]] = [[] for _ in range(count)]
    for link in group.links:
        source, target = link.path[0], link.path[-1]
        lower, upper = (target, source) if link.reversed else (source, target)
        uppers[lower].append(upper)
    up = [0] * count  # links above, on the longest path
    for row in group.rows:
        for cell in row:
            up[cell] = max([up[upper] + 1 for upper in uppers[cell]], default=0)
    longest = max(up, default=0)
    path: set[int] = set()
    ends = [cell for cell in range(count) if up[cell] == longest and longest > 0]
    while ends:
        ends.sort(key=lambda cell: (position[cell], cell))
        cell = ends[(len(ends) - 1) // 2]
        path.add(cell)
        ends = [upper for upper in uppers[cell] if up[upper] == up[cell] - 1]
    return path
