"""Rows of a group, and invariants of every placement."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from make_scene import Box, scene_of, tower

from autogradviz.scene.layout.coordinates import place
from autogradviz.scene.layout.rows_and_x_positions import MAX_SPAN, arrange


def arranged(links, *, count=None, tops=(), bottoms=()):
    cells = count or 1 + max(max(link) for link in links)
    return arrange(range(cells), links, tops, bottoms)


def test_chain_has_one_cell_per_row_in_input_order():
    assert arranged([(1, 0), (2, 1)]).rows == [[0], [1], [2]]


def test_link_over_several_rows_has_one_bend_per_row():
    arrangement = arranged([(1, 0), (2, 1), (3, 2), (3, 0)])
    assert arrangement.paths[3] == (3, 4, 5, 0)
    assert arrangement.rows == [[0], [5, 1], [4, 2], [3]]


def test_link_over_too_many_rows_has_no_bends():
    last = MAX_SPAN + 1
    links = [(i, i - 1) for i in range(1, last + 1)]
    assert arranged([*links, (last, 0)]).paths[-1] == (last, 0)
    assert len(arranged([*links, (last, 1)]).paths[-1]) == MAX_SPAN + 1


def test_constant_is_placed_next_to_its_user():
    assert arranged([(1, 0), (2, 1), (4, 2), (4, 3)]).rows == [[0], [1], [2, 3], [4]]


def test_ports_are_in_the_first_and_the_last_row():
    arrangement = arranged([(0, 2), (1, 0), (3, 1)], tops=[2], bottoms=[3])
    assert arrangement.rows == [[2], [0], [1], [3]]


def test_cycle_reverses_the_link_from_the_older_cell():
    arrangement = arranged([(1, 0), (0, 1), (2, 1)])
    assert arrangement.rows == [[0], [1], [2]]
    assert arrangement.reversed == [False, True, False]


def test_chain_of_five_thousand_cells_is_arranged():
    arrangement = arranged([(i, i - 1) for i in range(1, 5000)])
    assert arrangement.rows == [[i] for i in range(5000)]


def test_chain_is_one_straight_column_through_open_groups():
    scene = scene_of(*tower(3))
    placement = place(scene, [group.index for group in scene.groups])
    middles = {round(box.x + box.width / 2, 3) for box in placement.boxes if box.kind == "node"}
    assert len(middles) == 1
    assert {len(line.points) for line in placement.lines} == {2}


def test_lanes_of_a_dense_net_are_on_one_side_of_its_column():
    boxes = [Box(i, "cat", to=list(range(1, i))) for i in range(1, 9)]
    group = scene_of(*boxes).groups[0]
    for row in group.rows:
        assert [group.cells[cell].kind for cell in row][-1] == "node"


def test_long_skip_link_is_a_stub_at_both_ends():
    boxes = [Box(1, "exp"), *(Box(i, "mul", to=[i - 1]) for i in range(2, 50))]
    scene = scene_of(*boxes, Box(50, "add", to=[49, 1]))
    stubs = [line for line in place(scene, []).lines if line.stub]
    assert [(len(stub.points), stub.arrow) for stub in stubs] == [(2, False), (2, True)]


def random_scene(seed):
    """Return a scene with skips, branches, leaves and nested modules, and some open groups."""
    chance = random.Random(seed)
    boxes = []
    for i in range(1, chance.randint(2, 30)):
        to = (
            {chance.randint(max(1, i - 6), i - 1) for _ in range(chance.choice([1, 1, 2, 3]))}
            if i > 1
            else set()
        )
        boxes.append(
            Box(
                i,
                chance.choice(["mm", "add", "native_layer_norm", "exp"]),
                to=sorted(to),
                module=chance.choice(["", f"h.{i // 6}", f"h.{i // 6}.attn", f"enc{i // 9}"]),
                saves=chance.choice([[], ["self"], ["self", "mat2", "result", "weight"]]),
                leaves=chance.choice([[], [], [f"p{i}.weight", f"p{i}.bias"]]),
            )
        )
    scene = scene_of(*boxes)
    return scene, {g.index for g in scene.groups if chance.random() < 0.6}


def solid(scene, placement):
    """Return the rectangles that no line may cross: boxes with their badges."""
    rects = []
    for box in placement.boxes:
        left = right = 0.0
        if box.kind == "node":
            left, right = scene.nodes[box.ref].left_width, scene.nodes[box.ref].right_width
        if box.kind != "frame":
            rects.append((box.x - left, box.y, box.x + box.width + right, box.y + box.height))
    return rects


def overlap(a, b, slack=0.01):
    return (
        a[0] < b[2] - slack and b[0] < a[2] - slack and a[1] < b[3] - slack and b[1] < a[3] - slack
    )


@pytest.mark.ci(reason="lays out many random graphs")
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9))
def test_boxes_do_not_overlap_and_no_line_crosses_a_box(seed):
    scene, opened = random_scene(seed)
    placement = place(scene, opened)
    rects = solid(scene, placement)
    for i, rect in enumerate(rects):
        assert not any(overlap(rect, other) for other in rects[i + 1 :])
        assert 0 <= rect[0] < rect[2] <= placement.width + 0.01
        assert 0 <= rect[1] < rect[3] <= placement.height + 0.01
    for line in placement.lines:
        for (x0, y0), (x1, y1) in zip(line.points, line.points[1:], strict=False):
            assert abs(x0 - x1) < 0.51 or abs(y0 - y1) < 0.51
            piece = (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
            thick = (piece[0] - 0.5, piece[1] - 0.5, piece[2] + 0.5, piece[3] + 0.5)
            assert not any(overlap(thick, rect, slack=1.2) for rect in rects)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
@example(36673)
def test_frames_contain_their_boxes_and_no_line_crosses_their_headers(seed):
    scene, opened = random_scene(seed)
    placement = place(scene, opened)
    frames = {box.ref: box for box in placement.boxes if box.kind == "frame"}
    for box in placement.boxes:
        parent = scene.nodes[box.ref].group if box.kind == "node" else scene.groups[box.ref].parent
        if parent in frames:
            frame = frames[parent]
            assert frame.x < box.x
            assert box.x + box.width < frame.x + frame.width
            assert frame.y + 30 <= box.y
            assert box.y + box.height < frame.y + frame.height
    for ref, frame in frames.items():
        words = (frame.x, frame.y + 6, frame.x + scene.groups[ref].header_width, frame.y + 28)
        for line in placement.lines:
            for (x0, y0), (x1, y1) in zip(line.points, line.points[1:], strict=False):
                piece = (min(x0, x1) - 0.5, min(y0, y1), max(x0, x1) + 0.5, max(y0, y1))
                # A link that is less than half a pixel from straight is drawn at one of its ends.
                assert not overlap(piece, words, slack=1.2)


def test_placement_is_deterministic():
    scene, opened = random_scene(7)
    assert place(scene, opened) == place(scene, sorted(opened, reverse=True))
