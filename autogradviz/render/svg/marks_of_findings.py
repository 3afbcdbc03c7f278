"""The marks of the boxes that findings are about.

The viewer's ``scene/scene_index.js`` finds the same boxes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autogradviz.render.svg import themes_and_primitives as svg

if TYPE_CHECKING:
    from collections.abc import Iterator

    from autogradviz.render.svg.themes_and_primitives import Theme
    from autogradviz.scene.layout.coordinates import Box, Placement
    from autogradviz.scene.schema import Scene


def draw_marks(scene: Scene, placement: Placement, theme: Theme) -> Iterator[str]:
    """Yield a mark for each box of a finding that is not red: red if a finding is no hint."""
    for box, hint in marked_boxes(scene, placement):
        color = theme.path if hint else theme.mutation
        yield svg.finding_disc(box.x + box.width - 1, box.y, color, theme.page)


def marked_boxes(scene: Scene, placement: Placement) -> Iterator[tuple[Box, bool]]:
    """Yield the boxes of findings that are not red, and whether hints are all that is there."""
    nodes: dict[int, bool] = {}
    groups: dict[int, bool] = {}
    for finding in scene.findings:
        hint = finding.confidence == "hint"
        for index in finding.nodes:
            nodes[index] = nodes.get(index, True) and hint
            at = scene.nodes[index].group
            while at >= 0:
                groups[at] = groups.get(at, True) and hint
                at = scene.groups[at].parent
    for box in placement.boxes:
        if box.kind == "node":
            node = scene.nodes[box.ref]
            if box.ref in nodes and not (node.error or node.state == "failed"):
                yield box, nodes[box.ref]
        elif box.kind == "group" and box.ref in groups and not scene.groups[box.ref].error:
            yield box, groups[box.ref]
