"""Pictures for papers: as wide as a column, readable there, without what asks for clicks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from autogradviz.scene.label_text_and_width import text_width
from autogradviz.scene.layout.coordinates import place
from autogradviz.scene.node_boxes_and_badges import badge_width, badges_width, right_width

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from autogradviz.scene.schema import ParameterBadge, SavedTensorBadge, Scene, SceneNode

SHRINK: Final = 0.8422
"""Text of 9.5 px, the smallest, is 6 pt high then."""

PX_PER_MM: Final = 96 / 25.4
PAPER_MARGIN: Final = 6.0
CHEVRON: Final = 10.0
"""Width of the expander of a group."""

NARROWEST: Final = 4


def room_of(width_mm: float) -> float:
    """Return the width of a picture in its own units.

    Raises:
        ValueError: if the width is not positive.
    """
    if not width_mm > 0:
        message = f"width_mm is a positive number, not {width_mm!r}"
        raise ValueError(message)
    return width_mm * PX_PER_MM / SHRINK


def fit_to_column(scene: Scene, open_groups: Collection[int], room: float) -> Scene:
    """Return a scene that is at most as wide as a column, if leaving badges out is enough.

    Versions are written only where they change. What is left out, until the rest fits: the minimum
    widths of boxes, saved tensors after the largest of each node, parameters, and saved tensors
    that nothing wrote.
    """
    narrow = scene
    for narrowness in range(NARROWEST + 1):
        narrow = _narrow(scene, narrowness)
        if place(narrow, open_groups).width <= room:
            break
    return narrow


def _narrow(scene: Scene, narrowness: int) -> Scene:
    saved: defaultdict[int, list[SavedTensorBadge]] = defaultdict(list)
    for badge in scene.saved_badges:
        saved[badge.node].append(badge)
    parameters: defaultdict[int, list[ParameterBadge]] = defaultdict(list)
    for parameter in scene.parameter_badges if narrowness < 3 else ():  # noqa: PLR2004
        parameters[parameter.node].append(parameter)
    shown = {node: _shown(badges, narrowness) for node, badges in saved.items()}
    nodes = [
        _narrow_node(node, shown.get(node.index, ()), parameters.get(node.index, ()), narrowness)
        for node in scene.nodes
    ]
    return replace(
        scene,
        nodes=tuple(nodes),
        groups=tuple([replace(each, width=each.width - CHEVRON) for each in scene.groups]),
        saved_badges=tuple([badge for badges in shown.values() for badge in badges]),
        parameter_badges=tuple([each for badges in parameters.values() for each in badges]),
    )


def _shown(badges: Sequence[SavedTensorBadge], narrowness: int) -> list[SavedTensorBadge]:
    """Return the badges of a node that are drawn; the others are counted, or left out."""
    plain = [_without_version(badge) for badge in badges]
    first = max(plain, key=lambda badge: (badge.state == "broken", bool(badge.width), badge.nbytes))
    if narrowness == NARROWEST:
        return [first] if first.state == "broken" else []
    if narrowness < 2:  # noqa: PLR2004
        return plain
    return [badge if badge is first else replace(badge, width=0.0) for badge in plain]


def _without_version(badge: SavedTensorBadge) -> SavedTensorBadge:
    if badge.version is None or badge.seen_version not in {None, badge.version}:
        return badge
    plain = replace(badge, version=None, seen_version=None)
    return replace(plain, width=badge_width(plain)) if badge.width else plain


def _narrow_node(
    node: SceneNode,
    saved: Sequence[SavedTensorBadge],
    parameters: Sequence[ParameterBadge],
    narrowness: int,
) -> SceneNode:
    if node.compact:
        return node
    op_width, name_width = node.op_width, node.name_width
    if narrowness:
        name_width = min(name_width, text_width(node.name, bold=True) + 16)
        pencil = 16 if node.writes or node.wrote else 0
        op_width = min(op_width, text_width(node.op, bold=node.writes) + 16 + pencil)
    return replace(
        node,
        op_width=op_width,
        name_width=name_width,
        left_width=badges_width(parameters),
        right_width=right_width(saved),
    )
