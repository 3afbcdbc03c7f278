"""From what people call things to what the viewer selects."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from autogradviz.analysis.formatting import short_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.scene.schema import Scene, SceneGroup, SceneNode


def find_item(scene: Scene, what: str | int) -> dict[str, Any]:
    """Return what a widget's ``selected`` says of a node or a group.

    Args:
        scene: where to look.
        what: a node's number, or the name of a module, a parameter, a node or an op, or a line
            as "train.py:12"; they are tried in this order.

    Raises:
        ValueError: nothing is called so.
    """
    if isinstance(what, int):
        found = next((node for node in scene.nodes if node.node_id == what), None)
        if found is None:
            message = f"this scene draws no node {what}"
            raise ValueError(message)
        return _told(found)
    group = next((g for g in scene.groups[1:] if g.path == what and g.kind != "repeat"), None)
    if group is not None:
        return _told_group(group)
    for names in (_parameters(scene), _nodes(scene)):
        for name, node in names:
            if name == what:
                return _told(node)
    raise ValueError(_nothing(scene, what))


def find_group(scene: Scene, module: str) -> int:
    """Return the group that stands for a module; 0, the whole graph, for "".

    Raises:
        ValueError: no box stands for that module.
    """
    if not module:
        return 0
    same = [group for group in scene.groups if group.path == module]
    if not same:
        raise ValueError(_nothing(scene, module))
    return min(same, key=lambda group: group.kind == "repeat").index


def _told(node: SceneNode) -> dict[str, Any]:
    location = f"{node.filename}:{node.lineno}" if node.filename and node.lineno else node.filename
    return {
        "kind": "node",
        "id": node.node_id,
        "name": node.name,
        "module": node.module,
        "location": location,
    }


def _told_group(group: SceneGroup) -> dict[str, Any]:
    return {
        "kind": "group",
        "id": group.index,
        "name": group.label,
        "module": group.path,
        "location": "",
    }


def _parameters(scene: Scene) -> Iterator[tuple[str, SceneNode]]:
    for pennant in scene.pennants:
        yield pennant.name, scene.nodes[pennant.node]


def _nodes(scene: Scene) -> Iterator[tuple[str, SceneNode]]:
    for node in scene.nodes:
        yield node.name, node
        yield node.op, node
        yield node.module, node
        if node.lineno:
            yield f"{node.filename}:{node.lineno}", node
            yield f"{short_path(node.filename)}:{node.lineno}", node
            yield f"{short_path(node.filename).rpartition('/')[2]}:{node.lineno}", node


def _nothing(scene: Scene, what: str) -> str:
    names = {group.path for group in scene.groups if group.path}
    names |= {name for name, _ in _parameters(scene)} | {name for name, _ in _nodes(scene)}
    near = get_close_matches(what, names - {""}, n=3)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"nothing in this scene is called {what!r}{hint}"
