"""Nodes drawn as boxes, and nodes folded into parameter badges and counts."""

from __future__ import annotations

from make_scene import Box, model_of, scene_of

from autogradviz.scene.fold_leaves_and_views import fold_graph


def edges(scene):
    names = [node.op for node in scene.nodes]
    return [(names[e.source], names[e.target], e.views) for e in scene.edges]


def parameter_badges(scene):
    return [
        (scene.nodes[p.node].op, p.name, p.label, p.grad, p.shared) for p in scene.parameter_badges
    ]


def test_chain_of_views_is_a_count_on_its_edge():
    scene = scene_of(
        Box(1, "mm"), Box(2, "view", to=[1]), Box(3, "transpose", to=[2]), Box(4, "sum", to=[3])
    )
    assert edges(scene) == [("sum", "mm", 2)]


def test_view_with_two_users_stays_a_box():
    scene = scene_of(
        Box(1, "mm"), Box(2, "view", to=[1]), Box(3, "exp", to=[2]), Box(4, "mul", to=[3, 2])
    )
    assert edges(scene) == [
        ("view", "mm", 0),
        ("exp", "view", 0),
        ("mul", "exp", 0),
        ("mul", "view", 0),
    ]


def test_view_with_saved_tensors_stays_a_box():
    scene = scene_of(Box(1, "mm"), Box(2, "select", to=[1], saves=["self"]), Box(3, "sum", to=[2]))
    assert [node.op for node in scene.nodes] == ["mm", "select", "sum"]


def test_view_at_the_root_stays_a_box():
    scene = scene_of(Box(1, "mm"), Box(2, "view", to=[1]))
    assert edges(scene) == [("view", "mm", 0)]


def test_parameter_is_a_badge_on_its_users_also_through_views():
    scene = scene_of(
        Box(1, "t", leaves=["fc.weight"]),
        Box(2, "mm", to=[1]),
        Box(3, "mm", to=[2, 1]),
        Box(4, "add", to=[3], leaves=["x"]),
    )
    assert parameter_badges(scene) == [
        ("mm", "fc.weight", "fc.weight", "ok", 2),
        ("mm", "fc.weight", "fc.weight", "ok", 2),
        ("add", "", "input", "ok", 1),
    ]


def test_parameters_of_one_module_share_a_badge_and_inputs_do_not():
    scene = scene_of(Box(1, "addmm", leaves=["fc.weight", "fc.bias", "x"]), Box(2, "sum", to=[1]))
    drawn = [(p.label, p.width > 0) for p in scene.parameter_badges]
    assert drawn == [("fc.weight, bias", True), ("fc.bias", False), ("input", True)]


def test_leaf_not_reached_by_backward_has_no_gradient():
    scene = scene_of(
        Box(1, "mm", leaves=["a.weight"], ran=False), Box(2, "mm", to=[1], leaves=["b.weight"])
    )
    assert [(p.name, p.grad) for p in scene.parameter_badges] == [
        ("a.weight", "none"),
        ("b.weight", "ok"),
    ]


def test_residual_add_is_compact_and_bias_add_is_not():
    scene = scene_of(
        Box(1, "exp"),
        Box(2, "mm", to=[1]),
        Box(3, "add", to=[1, 2]),
        Box(4, "add", to=[3], leaves=["fc.bias"]),
    )
    assert [(n.op, n.compact) for n in scene.nodes] == [
        ("exp", False),
        ("mm", False),
        ("add", True),
        ("add", False),
    ]


def test_chain_of_thousands_of_views_is_folded():
    boxes = [Box(1, "mm"), *(Box(i, "view", to=[i - 1]) for i in range(2, 5000))]
    folded = fold_graph(model_of(*boxes, Box(5000, "sum", to=[4999])).graph)
    assert folded.edges == [(1, 0, 4998)]
