"""Find the node or group of a scene that a query names."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from autogradviz.analysis.formatting import short_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.scene.schema import Scene, SceneGroup, SceneNode


def find_item(scene: Scene, query: str | int) -> dict[str, Any]:
    """Return the value of a widget's ``selected`` trait for a node or a group.

    Args:
        scene: the scene to search.
        query: a node number, or the name of a module, a parameter, a node or an op, or a source
            line as "train.py:12", tried in this order. The first match is returned.

    Raises:
        ValueError: if there is no match.
    """
    if isinstance(query, int):
        found = next((node for node in scene.nodes if node.node_id == query), None)
        if found is None:
            message = f"there is no node {query} in this trace"
            raise ValueError(message)
        return _node_selection(found)
    group = next((g for g in scene.groups[1:] if g.path == query and g.kind != "repeat"), None)
    if group is not None:
        return _group_selection(group)
    for names in (_parameter_names(scene), _node_names(scene)):
        for name, node in names:
            if name == query:
                return _node_selection(node)
    raise ValueError(_no_match(scene, query))


def find_group(scene: Scene, module: str) -> int:
    """Return the index of a module's group; 0, the root group, for "".

    Raises:
        ValueError: if the module has no group.
    """
    if not module:
        return 0
    matches = [group for group in scene.groups if group.path == module]
    if not matches:
        raise ValueError(_no_match(scene, module))
    return min(matches, key=lambda group: group.kind == "repeat").index


def _node_selection(node: SceneNode) -> dict[str, Any]:
    location = f"{node.filename}:{node.lineno}" if node.filename and node.lineno else node.filename
    return {
        "kind": "node",
        "id": node.node_id,
        "name": node.name,
        "module": node.module,
        "location": location,
    }


def _group_selection(group: SceneGroup) -> dict[str, Any]:
    return {
        "kind": "group",
        "id": group.index,
        "name": group.label,
        "module": group.path,
        "location": "",
    }


def _parameter_names(scene: Scene) -> Iterator[tuple[str, SceneNode]]:
    for badge in scene.parameter_badges:
        yield badge.name, scene.nodes[badge.node]


def _node_names(scene: Scene) -> Iterator[tuple[str, SceneNode]]:
    for node in scene.nodes:
        yield node.name, node
        yield node.op, node
        yield node.module, node
        if node.lineno:
            yield f"{node.filename}:{node.lineno}", node
            yield f"{short_path(node.filename)}:{node.lineno}", node
            yield f"{short_path(node.filename).rpartition('/')[2]}:{node.lineno}", node


def _no_match(scene: Scene, query: str) -> str:
    names = {group.path for group in scene.groups if group.path}
    names |= {name for name, _ in (*_parameter_names(scene), *_node_names(scene))}
    similar = get_close_matches(query, names - {""}, n=3)
    hint = f"; did you mean {' or '.join(map(repr, similar))}?" if similar else ""
    return f"nothing in this trace is named {query!r}{hint}"
