"""Modules and compiled regions that a caller opens by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autogradviz.scene.compiled.regions_of_nodes import node_to_open

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from autogradviz.analysis.compiled_region_types import CompiledRegion
    from autogradviz.scene.fold_leaves_and_views import FoldedGraph


@dataclass(frozen=True, slots=True)
class OpenedParts:
    """Modules to open, by path, and nodes of compiled regions, by index."""

    modules: tuple[str, ...]
    compiled_nodes: frozenset[int]
    apart: frozenset[int]  # nodes whose blocks do not join a run of identical blocks


def find_opened(
    names: Collection[str],
    folded: FoldedGraph,
    regions: Sequence[CompiledRegion],
    region_of: Mapping[int, int],
) -> OpenedParts:
    """Return the modules and nodes that names stand for; modules come before regions.

    Args:
        names: paths of modules, and names of compiled regions.
        folded: the drawn graph.
        regions: the compiled regions of the recording.
        region_of: the position of the region that each node runs.

    Raises:
        ValueError: if a name stands for no node.
    """
    modules: dict[str, int] = {}
    compiled: set[int] = set()
    for name in names:
        node = _first_node(folded, name)
        if node is not None:
            modules[name] = node
            continue
        node = node_to_open(name, regions, region_of)
        if node is None:
            other = " and no compiled region has this name" if regions else ""
            message = f"no node of the graph belongs to a module {name!r}{other}"
            raise ValueError(message)
        compiled.add(node)
    apart = frozenset((*modules.values(), *compiled))
    return OpenedParts(tuple(modules), frozenset(compiled), apart)


def _first_node(folded: FoldedGraph, module: str) -> int | None:
    """Return the index of one node of a module, if possible not of a module inside it."""
    inside = [
        (node.module != module, index)
        for index, node in enumerate(folded.nodes)
        if f"{node.module}.".startswith(f"{module}.")
    ]
    return min(inside)[1] if inside else None
