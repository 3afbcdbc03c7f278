"""The ribbons of the fold are the storages that are counted."""

from __future__ import annotations

from collections import Counter
from xml.etree import ElementTree as ET

import pytest
from event_strategies import any_events
from hypothesis import given, settings
from hypothesis import strategies as st

from autogradviz.analysis import Analysis
from autogradviz.event_log import Log
from autogradviz.render.svg.saved_memory_fold import render_fold_svg
from autogradviz.scene.build_scene import build_scene
from autogradviz.scene.node_boxes_and_badges import KINDS, kind_of_slot
from autogradviz.scene.saved_memory_fold import SCALE


@settings(max_examples=150, deadline=None)
@given(st.lists(any_events(st.integers(-1, 4)), max_size=40))
def test_each_counted_storage_is_in_one_ribbon(events):
    scene = build_scene(Analysis(Log.from_events(events)), ())
    members = Counter(at for ribbon in scene.ribbons for at in ribbon.members)
    assert members == dict.fromkeys(range(len(scene.counted_storages)), 1)
    for fold in scene.folds:
        own = [ribbon for ribbon in scene.ribbons if ribbon.fold == fold.index]
        assert sum(ribbon.nbytes for ribbon in own) == fold.nbytes
        edges = [edge for ribbon in own for edge in ribbon.waist]
        assert edges == sorted(edges)
        assert all(0 <= edge <= SCALE for edge in edges)
        assert ET.fromstring(render_fold_svg(scene, fold)).tag.endswith("svg")


@pytest.mark.parametrize(
    ("node", "slot", "made_by", "kind", "label"),
    [
        ("GeluBackward0", "self", "addmm", "activation", "GELU input"),
        ("ReluBackward0", "result", "relu", "activation", "ReLU output"),
        ("AddmmBackward0", "mat1", "gelu", "activation", "GELU output"),
        ("AddmmBackward0", "mat1", "view", "linear", "linear input"),
        ("SoftmaxBackward0", "result", "_softmax", "attention", "softmax result"),
        ("MulBackward0", "other", "bernoulli_", "attention", "dropout mask"),
        ("NativeLayerNormBackward0", "result1", "", "norm", "mean"),
        ("ConvolutionBackward0", "input", "", "convolution", "convolution input"),
        ("LogSoftmaxBackward0", "result", "", "loss", "log probabilities"),
        ("FusedRmsNormBackward0", "result1", "", "norm", "reciprocal of rms"),
        ("BmmBackward0", "mat2", "", "product", "right factor"),
        ("DivBackward0", "other", "", "elementwise", "divisor"),
        ("ExpBackward0", "result", "", "elementwise", "exp output"),
        ("NllLossBackward0", "target", "", "loss", "targets"),
        ("MaxPool2DWithIndicesBackward0", "result1", "", "index", "indices of the maxima"),
        ("MulBackward0", "self", "", "elementwise", "factor"),
        ("SomethingElse", "x", "", "other", "SomethingElse x"),
    ],
)
def test_slots_have_a_kind_and_a_meaning(node, slot, made_by, kind, label):
    assert kind_of_slot(node, slot, made_by) == (kind, label)
    assert kind in {each.name for each in KINDS}
