"""Loops without modules, and groups that would form cycles."""

from __future__ import annotations

from make_scene import Box, scene_of

from autogradviz.scene.fold_loops import _find_loops


def test_repeated_keys_are_one_loop():
    assert _find_loops([9, *[1, 2, 3] * 5, 8]) == [(1, 3, 5)]


def test_smallest_period_that_covers_the_most_is_chosen():
    assert _find_loops([1, 1, 2] * 6) == [(0, 3, 6)]


def test_three_iterations_are_not_folded():
    assert _find_loops([1, 2, 3, 4, 5] * 3) == []


def test_short_loops_are_not_folded():
    assert _find_loops([1, 2] * 5) == []


def test_two_loops_after_each_other_are_separate():
    assert _find_loops([*[1, 2, 3] * 4, 7, *[4, 5, 6] * 5]) == [(0, 3, 4), (13, 3, 5)]


def test_module_that_is_entered_again_is_split_where_it_would_form_a_cycle():
    scene = scene_of(
        Box(1, "exp", module="a.x"),
        Box(2, "mm", to=[1], module="a.x"),
        Box(3, "relu", to=[2], module="b"),
        Box(4, "mm", to=[3], module="b"),
        Box(5, "exp", to=[4], module="a.y"),
        Box(6, "mm", to=[5], module="a.y"),
        Box(7, "sum", to=[6]),
    )
    assert not any(link.reversed for group in scene.groups for link in group.links)


def test_parallel_branches_stay_together():
    scene = scene_of(
        Box(1, "exp"),
        Box(2, "exp", to=[1], module="a"),
        Box(3, "exp", to=[1], module="b"),
        Box(4, "mm", to=[2], module="a"),
        Box(5, "mm", to=[3], module="b"),
        Box(6, "add", to=[4, 5]),
    )
    assert not any(link.reversed for group in scene.groups for link in group.links)
