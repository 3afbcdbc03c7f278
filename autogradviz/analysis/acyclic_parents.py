"""Parents that a loop may follow, whatever a file says."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def acyclic(parents: Mapping[int, int | None]) -> dict[int, int | None]:
    """Return the same parents without cycles, which only corrupt files have.

    The parent that closes a cycle becomes None.
    """
    found = dict(parents)
    finished: set[int] = set()
    for start in parents:
        path: dict[int, None] = {}
        at: int | None = start
        while at is not None and at not in finished:
            path[at] = None
            parent = found.get(at)
            if parent in path:
                found[at] = parent = None
            at = parent
        finished.update(path)
    return found
