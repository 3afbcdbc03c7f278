"""Modules, regions and repeated blocks as groups, and the initially open groups."""

from __future__ import annotations

import pytest
from make_scene import Box, block, labels, scene_of, tower

from autogradviz.diagnose.finding import Finding


def finding(*nodes):
    return Finding(
        slug="saved-tensor-mutated",
        title="result was written",
        culprit=None,
        victim=None,
        explanation="",
        fix="",
        confidence="certain",
        events=(),
        nodes=nodes,
    )


def opened(scene):
    return [group.label for group in scene.groups if group.open]


def test_modules_are_nested_by_their_names():
    scene = scene_of(
        Box(1, "exp"),
        *block(2, "enc.attn", to=[1]),
        *block(5, "enc.mlp", to=[4], op="gelu"),
        Box(8, "sum", to=[7]),
    )
    assert [(g.label, g.parent, g.depth, g.node_count) for g in scene.groups] == [
        ("", -1, 0, 8),
        ("enc", 0, 1, 6),
        ("attn", 1, 2, 3),
        ("mlp", 1, 2, 3),
    ]


def test_module_with_one_node_is_drawn_as_that_node():
    scene = scene_of(Box(1, "mm", module="fc"), Box(2, "sum", to=[1]))
    assert [(g.path, g.node_count) for g in scene.groups] == [("", 2)]
    assert [node.module for node in scene.nodes] == ["fc", ""]


def test_model_with_a_single_module_is_the_root():
    scene = scene_of(*block(1, "net", to=[]))
    assert [(g.kind, g.path, g.parent) for g in scene.groups] == [("root", "net", -1)]


def test_identical_blocks_are_one_repeat_group():
    scene = scene_of(*tower(4))
    assert labels(scene)[1:] == ["h.0–3", "h.0", "h.1–3", "h.1", "h.2", "h.3"]
    run, first, rest = scene.groups[1:4]
    assert (run.path, run.repeat, run.node_count, run.open) == ("h", 4, 12, True)
    assert (first.repeat, first.node_count, first.open) == (1, 3, True)
    assert (rest.kind, rest.repeat, rest.node_count, rest.open) == ("repeat", 3, 9, False)


def test_failing_block_is_open_and_not_in_a_repeat_group():
    scene = scene_of(*tower(4), findings=[finding(9)])  # the relu of h.2
    assert labels(scene)[1:] == ["h", "h.0–1", "h.0", "h.1", "h.2", "h.3"]
    assert opened(scene) == ["", "h", "h.2", "h.3"]
    assert [n.node_id for n in scene.nodes if n.error] == [9]


def test_different_blocks_are_no_repeat_group():
    scene = scene_of(
        *block(1, "h.0", to=[]), *block(4, "h.1", to=[3], op="gelu"), Box(7, "sum", to=[6])
    )
    assert labels(scene)[1:] == ["h", "h.0", "h.1"]


def test_module_called_twice_has_two_groups():
    scene = scene_of(
        *block(1, "mlp", to=[]),
        Box(4, "exp", to=[3]),
        *block(5, "mlp", to=[4]),
        Box(8, "sum", to=[7]),
    )
    assert [(g.path, g.node_count) for g in scene.groups[1:]] == [("mlp", 3), ("mlp", 3)]
    assert not any(link.reversed for link in scene.groups[0].links)


def test_container_is_omitted_if_other_ops_run_between_its_modules():
    scene = scene_of(
        *block(1, "ls.0", to=[]),
        Box(4, "cat", to=[3]),
        *block(5, "ls.1", to=[4]),
        Box(8, "cat", to=[7, 3]),
    )
    assert labels(scene)[1:] == ["ls.0", "ls.1"]


def test_module_in_a_checkpoint_region_is_checkpointed():
    scene = scene_of(*block(1, "mlp", to=[], region=1), Box(4, "sum", to=[3]), regions=[1])
    group = scene.groups[1]
    assert (group.label, group.kind, group.checkpointed, group.recomputes) == (
        "mlp",
        "module",
        True,
        1,
    )


def test_region_that_is_not_a_module_is_a_group():
    scene = scene_of(
        Box(1, "exp", region=1), Box(2, "mul", to=[1], region=1), Box(3, "sum", to=[2]), regions=[1]
    )
    group = scene.groups[1]
    assert (group.label, group.kind, group.checkpointed) == ("forward", "region", True)


@pytest.mark.parametrize(
    ("depth", "expected"), [(0, [""]), (1, [""]), (2, ["", "enc"]), (3, ["", "enc", "attn", "mlp"])]
)
def test_depth_is_the_number_of_open_levels(depth, expected):
    scene = scene_of(
        Box(1, "exp"),
        *block(2, "enc.attn", to=[1]),
        *block(5, "enc.mlp", to=[4], op="gelu"),
        Box(8, "sum", to=[7]),
        depth=depth,
    )
    assert opened(scene) == expected


@pytest.mark.parametrize(("count", "expected"), [(3, 3), (30, 0)])
def test_similar_modules_are_opened_together_if_the_picture_stays_small(count, expected):
    boxes = [Box(1, "exp")]
    for i in range(count):
        boxes += block(2 + 3 * i, f"part{i}", to=[1 + 3 * i])
    scene = scene_of(*boxes, Box(3 * count + 2, "sum", to=[3 * count + 1]))
    assert sum(group.open for group in scene.groups[1:]) == expected


@pytest.mark.parametrize(("length", "expected"), [(35, ["h", "h.0–1", "h.0"]), (45, ["h"])])
def test_the_only_group_is_opened_in_a_picture_of_any_height(length, expected):
    boxes = [
        Box(number, f"op{number % length}", to=[number - 1] if number else [], module=f"h.{block}")
        for block in range(2)
        for number in range(block * length, (block + 1) * length)
    ]
    assert opened(scene_of(*boxes)) == expected


def test_large_graph_shows_only_its_outermost_modules():
    boxes = [Box(1, "exp")]
    for i in range(400):
        boxes += block(2 + 3 * i, f"part{i % 2}.m{i}", to=[1 + 3 * i])
    assert opened(scene_of(*boxes)) == [""]


def test_group_of_more_than_a_thousand_nodes_has_pages():
    boxes = [Box(1, "exp")] + [Box(i, "exp", to=[i - 1]) for i in range(2, 2401)]
    scene = scene_of(*boxes)
    assert labels(scene)[1:] == [
        "1–1,000 of 2,400",
        "1,001–2,000 of 2,400",
        "2,001–2,400 of 2,400",
    ]
    root, *pages = scene.groups
    assert [page.kind for page in pages] == ["page"] * 3
    assert [page.node_count for page in pages] == [1000, 1000, 400]
    assert [cell.kind for cell in root.cells if cell.kind in {"node", "group"}] == ["group"] * 3
