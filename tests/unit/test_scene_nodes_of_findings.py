"""Findings that name no nodes are at those of their events and lines, and are marked there."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from make_scene import Box, scene_of
from test_scene_node_boxes import MUTATED, line
from test_svg import texts
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.render.svg.draw_graph import render_svg
from autogradviz.render.svg.themes_and_primitives import LIGHT

HINT = replace(MUTATED, culprit=line(3), victim=None, nodes=(), confidence="hint")
BOXES = [Box(1, "mm"), Box(2, "exp", to=[1]), Box(3, "mul", to=[2]), Box(4, "sum", to=[3])]


def nodes_of(trace, slug):
    """Return the names of the nodes that the finding of a kind has in the scene."""
    scene = trace._scene
    finding = next(each for each in scene.findings if each.slug == slug)
    return [scene.nodes[at].name for at in finding.nodes]


@pytest.mark.parametrize(
    ("finding", "ops"),
    [
        (HINT, ["mul"]),
        (replace(HINT, culprit=line(9), victim=line(2)), ["exp"]),
        (replace(HINT, nodes=(4,)), ["sum"]),
        (replace(HINT, culprit=line(9)), []),
    ],
    ids=["of the culprit", "of the victim", "its own", "none"],
)
def test_a_finding_is_at_the_nodes_of_its_lines(finding, ops):
    scene = scene_of(*BOXES, findings=[finding])
    assert [scene.nodes[at].op for at in scene.findings[0].nodes] == ops
    assert ("in a finding" in texts(render_svg(scene))) == bool(ops)


def test_a_loss_over_other_shapes_is_at_the_op_that_compares():
    net, target = nn.Linear(3, 1), torch.rand(8)
    with autogradviz.record(net) as trace:
        (net(torch.rand(8, 3)) - target).square().mean().backward()
    assert nodes_of(trace, "loss-broadcast") == ["SubBackward0"]


def test_clipping_is_at_the_nodes_that_gave_its_gradients():
    net = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with autogradviz.record(net) as trace:
        for _ in range(2):
            net(torch.rand(8, 3)).sum().backward()
            optimizer.step()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.zero_grad()
    assert set(nodes_of(trace, "clip-after-step")) == {"AddmmBackward0"}


def test_hooks_are_at_the_nodes_they_ran_on():
    net = nn.Linear(3, 1)
    with autogradviz.record(net) as trace:
        for _ in range(4):
            net.weight.register_hook(lambda gradient: gradient.clamp(-1, 1))
            net(torch.rand(8, 3)).sum().backward()
    assert set(nodes_of(trace, "hooks-pile-up")) == {"AddmmBackward0"}


def test_a_cut_inside_a_function_is_at_the_first_node_that_reads_its_result():
    net, x = nn.Linear(3, 1), torch.rand(8, 3, requires_grad=True)

    def features(x):
        return {"h": net(x)}

    with autogradviz.record(net) as trace:
        h = checkpoint(features, x, use_reentrant=True)["h"]
        (h.sum() + x.sum()).backward()
    assert nodes_of(trace, "reentrant-nested-results") == ["AddBackward0"]


@pytest.mark.parametrize("confidence", ["hint", "likely"])
def test_a_mark_is_red_only_if_a_finding_is_no_hint(confidence):
    picture = render_svg(scene_of(*BOXES, findings=[replace(HINT, confidence=confidence)]))
    disc = f'r="6.5" fill="{LIGHT.path if confidence == "hint" else LIGHT.mutation}"'
    assert picture.count(disc) == 2, "on the box and in the legend"


def test_a_closed_group_has_the_mark_of_its_nodes():
    boxes = [replace(each, module="net.inner") for each in BOXES[:3]]
    scene = scene_of(*boxes, BOXES[3], findings=[HINT])
    assert "mul" not in texts(render_svg(scene, open_groups=()))
    assert render_svg(scene, open_groups=()).count('r="6.5"') == 2
