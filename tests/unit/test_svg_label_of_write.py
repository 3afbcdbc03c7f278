"""The label of a write that a finding blames is on no box, badge or line."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import autogradviz
from autogradviz.render.svg.draw_graph import draw_graph
from autogradviz.render.svg.themes_and_primitives import LIGHT
from autogradviz.scene.label_text_and_width import text_width
from autogradviz.scene.layout.coordinates import place

LABEL = re.compile(r'<text x="([\d.]+)" y="([\d.]+)"[^>]*>(\w+ writes [^<]*)</text>')


class Gated(nn.Module):
    """A factor that is written where the victim is in the row of the write."""

    def __init__(self, width, *, before=0):
        super().__init__()
        self.a, self.b = nn.Linear(width, width), nn.Linear(width, width)
        self.before = before

    def forward(self, x):
        scale = torch.sigmoid(self.b(x))
        y = self.a(x) * scale
        for _ in range(self.before):
            y = y.sin()
        scale.mul_(0.5)
        return (y + scale).sum()


@pytest.mark.parametrize("before", [0, 1, 3])
def test_the_label_of_a_write_is_on_nothing_else(before):
    model = Gated(8, before=before)
    with pytest.raises(RuntimeError), autogradviz.record(model) as trace:
        model(torch.rand(4, 8)).backward()
    scene = trace._scene
    placement = place(scene, {group.index for group in scene.groups if group.open})
    [(x, y, words)] = LABEL.findall(draw_graph(scene, placement, LIGHT))
    left, middle = float(x), float(y) - 4
    right = left + text_width(words, 11.0, bold=True)

    def is_apart(from_x, to_x, from_y, to_y):
        return to_x < left or from_x > right or to_y < middle - 6 or from_y > middle + 6

    for box in placement.boxes:
        if box.kind == "node":
            node = scene.nodes[box.ref]
            end = box.x + box.width + node.right_width
            assert is_apart(box.x - node.left_width, end, box.y, box.y + box.height)
            corner = box.x + box.width
            assert is_apart(corner - 7, corner + 7, box.y - 7, box.y + 7), "the mark of a failure"
    for line in placement.lines:
        for (a, b), (c, d) in zip(line.points, line.points[1:], strict=False):
            assert is_apart(min(a, c), max(a, c), min(b, d), max(b, d))
