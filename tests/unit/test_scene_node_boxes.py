"""Badges, widths, the failing path, and data outside the graph."""

from __future__ import annotations

import json

import make_log as m
import pytest
from make_scene import Box, model_of, scene_of, tower

from autogradviz import events as e
from autogradviz.analysis import Analysis, SourceLocation
from autogradviz.analysis.formatting import display_op_name, format_bytes, format_shape
from autogradviz.diagnose.finding import Finding
from autogradviz.render.widget import pack
from autogradviz.scene.build_scene import build_scene
from autogradviz.scene.label_text_and_width import elide, text_width
from autogradviz.scene.layout.coordinates import place
from autogradviz.scene.payload import to_payload


def line(lineno):
    return SourceLocation(filename="net.py", lineno=lineno, function="forward", text="")


MUTATED = Finding(
    slug="saved-tensor-mutated",
    title="ExpBackward0.result was written before backward needed it",
    culprit=line(3),
    victim=line(2),
    explanation="",
    fix="x = x * 2",
    confidence="certain",
    events=(),
    nodes=(2,),
)
FAILING = [
    Box(1, "mm", ran=False),
    Box(2, "exp", to=[1], saves=["result"], seen=1),
    Box(3, "mul_", to=[2]),
    Box(4, "sum", to=[3]),
]


def saved_badges(scene):
    return [(c.slot, c.version, c.seen_version, c.state, c.width > 0) for c in scene.saved_badges]


def test_broken_badge_has_both_versions():
    scene = scene_of(*FAILING, findings=[MUTATED])
    assert saved_badges(scene) == [("result", 0, 1, "broken", True)]


def test_badge_of_a_checkpoint_is_recomputed():
    scene = scene_of(Box(1, "exp", saves=["result"], by="checkpoint"))
    assert saved_badges(scene) == [("result", 0, 0, "recomputed", True)]


def test_more_than_three_badges_are_counted():
    scene = scene_of(Box(1, "exp", saves=["a", "b", "c", "d", "e"]))
    assert [slot for slot, *_, drawn in saved_badges(scene) if drawn] == ["a", "b", "c"]
    assert scene.nodes[0].right_width == 9 + sum(c.width for c in scene.saved_badges) + 2 * 5 + 62


def test_victim_culprit_and_path_are_marked():
    scene = scene_of(*FAILING, findings=[MUTATED])
    assert [(n.op, n.error, n.writes) for n in scene.nodes] == [
        ("mm", False, False),
        ("exp", True, False),
        ("mul_", False, True),
        ("sum", False, False),
    ]
    assert [(e.source, e.target) for e in scene.edges if e.on_path] == [(2, 1), (3, 2)]
    assert scene.findings[0].nodes == (1,)


def test_boxes_of_a_column_have_equal_widths():
    scene = scene_of(Box(1, "exp", name="Sine"), Box(2, "sum", name="MeanBackward0", to=[1]))
    assert {(node.op_width, node.name_width) for node in scene.nodes} == {(84.0, 180.0)}
    scene = scene_of(*tower(2))
    assert {(node.op_width, node.name_width) for node in scene.nodes} == {(0.0, 180.0)}


def test_box_names_its_op_once_if_the_node_is_called_like_it():
    scene = scene_of(
        Box(1, "addmm", name="AddmmBackward0"),
        Box(2, "layer_norm", name="NativeLayerNormBackward0", to=[1]),
        Box(3, "upsample_nearest2d", name="UpsampleNearest2DBackward0", to=[2]),
    )
    assert [node.op_width > 0 for node in scene.nodes] == [False, True, False]
    assert scene.nodes[0].name_width == 180.0


def test_long_name_widens_its_box_and_a_very_long_name_is_elided():
    scene = scene_of(Box(1, "exp", name="A" * 300 + "Backward0"))
    node = scene.nodes[0]
    assert len(node.name) == 48
    assert node.name_width == text_width(node.name, bold=True) + 16 > 180


def test_summary_counts_all_nodes():
    scene = scene_of(Box(1, "t", leaves=["fc.weight"]), Box(2, "mm", to=[1]), title="One step")
    summary = scene.summary
    assert (summary.title, summary.nodes, summary.edges, summary.backwards) == ("One step", 3, 2, 1)
    assert summary.subtitle == "3 nodes · 2 edges"


def test_scene_of_one_box_can_be_placed():
    scene = scene_of(Box(1, "exp"))
    assert place(scene, []).boxes[0].ref == 0


def test_numbers_and_names_are_formatted():
    assert [format_bytes(n) for n in (0, 999, 1000, 3_145_728, 12_582_912)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "3.1 MB",
        "13 MB",
    ]
    assert format_bytes(12_500_000) == "12 MB"
    assert [format_shape(s) for s in ((), (4, 8))] == ["scalar", "4×8"]
    assert [
        display_op_name(name)
        for name in ("_softmax", "native_layer_norm", "nll_loss_forward", "mul_")
    ] == ["softmax", "layer_norm", "nll_loss", "mul_"]
    assert elide("abcdefghij", 5) == "ab…ij"


def test_payload_contains_every_value_of_the_scene():
    scene = scene_of(*FAILING, findings=[MUTATED])
    payload = json.loads(json.dumps(to_payload(scene)))
    strings = payload["strings"]
    assert payload["schema"] == 1
    assert [strings[i] for i in payload["nodes"]["op"]] == ["mm", "exp", "mul_", "sum"]
    assert [strings[i] for i in payload["nodes"]["state"]] == ["not_run", "ran", "ran", "ran"]
    assert payload["edges"]["on_path"] == [0, 1, 1]
    assert payload["groups"]["rows"] == [[[0], [1], [2], [3]]]
    assert payload["groups"]["links_path"] == [[[1, 0], [2, 1], [3, 2]]]
    assert [strings[i] for i in payload["groups"]["cells_kind"][0]] == ["node"] * 4
    assert payload["groups"]["cells_ref"] == [[0, 1, 2, 3]]
    assert payload["summary"]["title"] == "Net"
    assert sorted(payload["string_columns"]["saved_badges"]) == [
        "dtype",
        "packed_by",
        "shape",
        "slot",
        "state",
    ]


def test_payload_is_small():
    scene = scene_of(*tower(300))
    size = len(json.dumps(to_payload(scene), separators=(",", ":")))
    assert size / len(scene.nodes) < 900
    assert len(pack(scene)) / len(scene.nodes) < 130


@pytest.mark.parametrize(
    ("norm", "grad"), [(0.5, "ok"), (0.0, "zero"), (None, "nan")], ids=["ok", "zero", "nan"]
)
def test_gradient_norm_determines_its_symbol(norm, grad):
    facts = [
        m.tensor(1, (2,)),
        m.parameter(1, "w"),
        m.leaf(1, 1),
        m.node(2, "MulBackward0", nr=1, to=[1]),
        m.backward(roots=(2,)),
        m.ran(2),
        m.accumulated(1, 1),
        m.fact(e.NormRead, backward_id=1, tensor_id=1, place="gradient", norm=norm),
        m.backward_ended(),
    ]
    (badge,) = build_scene(Analysis(m.make_log(*facts)), ()).parameter_badges
    assert (badge.grad, badge.norm) == (grad, norm)


def test_scene_of_a_truncated_file_is_marked_as_torn():
    model = model_of(Box(1, "exp"))
    assert not build_scene(model, ()).summary.torn
    model.log.problem = "the file is cut off after 12 events"
    assert build_scene(model, ()).summary.torn
