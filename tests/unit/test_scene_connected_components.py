"""Each connected component of the graph has its own group."""

from __future__ import annotations

from make_scene import Box, block, scene_of

from autogradviz.scene.layout.coordinates import place


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
    assert top == [("repeat", "graphs 1–2", 2), ("graph", "graph 3", 1)]
    graph = next(g for g in scene.groups if g.label == "graph 3")
    assert (graph.type_name, graph.node_count, graph.path) == ("backward 1 · net.py:27", 7, "")
    assert graph.open


def test_graphs_are_numbered_by_their_losses_and_drawn_below_each_other():
    early, late = step(1), step(11, op="tanh")
    early[-1] = Box(30, "sum", to=[6])  # the loss of the graph that begins first
    scene = scene_of(*early, *late)
    graphs = [group for group in scene.groups if group.kind == "graph"]
    assert [graph.label for graph in graphs] == ["graph 1", "graph 2"]
    assert [max(n.sequence_nr for n in scene.nodes if is_in(scene, n, g)) for g in graphs] == [
        17,
        30,
    ]
    boxes = place(scene, {graph.index for graph in graphs}).boxes
    above, below = (box for box in boxes if box.kind == "frame")
    assert [above.ref, below.ref] == [graph.index for graph in graphs]
    assert above.y + above.height < below.y


def is_in(scene, node, group):
    """Return whether a node is in a group or in a group inside it."""
    at = node.group
    while at > group.index:
        at = scene.groups[at].parent
    return at == group.index


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
