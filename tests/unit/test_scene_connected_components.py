"""Each connected component of the graph has its own group."""

from __future__ import annotations

from make_scene import Box, block, scene_of


def step(first, *, op="relu", region=None):
    """Return one step over two modules, numbered from ``first``."""
    return [
        *block(first, "net.a", to=[], region=region),
        *block(first + 3, "net.b", to=[first + 2], op=op),
        Box(first + 6, "sum", to=[first + 5]),
    ]


def tree(scene):
    return [(g.kind, g.label, g.parent, g.node_count) for g in scene.groups]


def test_equal_steps_are_folded_and_different_steps_are_not():
    scene = scene_of(*step(1), *step(11), *step(21, op="tanh"))
    top = [(g.kind, g.label, g.repeat) for g in scene.groups if g.depth == 1]
    assert top == [("repeat", "graph 1 – graph 2", 2), ("graph", "graph 3", 1)]
    graph = next(g for g in scene.groups if g.label == "graph 3")
    assert (graph.type_name, graph.node_count, graph.path) == ("backward 1 · net.py:27", 7, "")
    assert graph.open


def test_single_graph_has_no_group_around_it():
    kinds = {kind for kind, *_ in tree(scene_of(*step(1)))}
    assert kinds == {"root", "module"}


def test_graphs_without_common_modules_have_no_group():
    scene = scene_of(*block(1, "net.a", to=[]), *block(11, "net.b", to=[], op="tanh"))
    assert [(kind, label) for kind, label, *_ in tree(scene)[1:]] == [
        ("module", "a"),
        ("module", "b"),
    ]


def test_checkpointed_module_is_marked_in_each_step():
    scene = scene_of(*step(1, region=1), *step(11, op="tanh", region=2), regions=(1, 2))
    regions = [(g.kind, g.label, g.checkpointed) for g in scene.groups if g.path == "net.a"]
    assert regions == [("module", "a", True), ("module", "a", True)]
