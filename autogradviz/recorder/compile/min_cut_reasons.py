"""Why the partitioner may not compute an op again: the edges of the graph that it cuts."""

from __future__ import annotations

from typing import Any, Final

_SOURCE: Final = "source"
_INNER: Final = "_in"
_REASON: Final = "cannot recompute"


def blocked_ops(graph: Any) -> dict[str, str]:
    """Return, by the names of ops that may not run again, why.

    An edge from the source with infinite capacity keeps an op out of the backward.

    Args:
        graph: the directed graph whose minimum cut separates forward from backward.
    """
    return {
        target.removesuffix(_INNER): options.get("reason", "")
        .removeprefix(_REASON)
        .removeprefix(": ")
        for origin, target, options in graph.edges(data=True)
        if origin == _SOURCE
    }
