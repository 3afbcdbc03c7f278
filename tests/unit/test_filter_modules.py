"""Filtering a recording by modules."""

import make_log as m
import pytest

from autogradviz import events as e
from autogradviz.event_log import within


@pytest.fixture
def log():
    """Two modules, "a" and "b", with one op each: node 1 belongs to a, node 2 to b."""
    return m.make_log(
        [m.began(), m.module(0, ""), m.module(1, "a"), m.module(2, "b")],
        [m.entered_module(0, 0, nr=0)],
        [m.entered_module(1, 1, nr=0, parent=0), m.op("exp", (1,), nr=0, call=1)],
        [m.exited_module(1, nr=1)],
        [m.entered_module(2, 2, nr=1, parent=0), m.op("sin", (2,), nr=1, call=2)],
        [m.exited_module(2, nr=2)],
        [m.fact(e.RandomDrawn, op="exp", op_seq=7), m.fact(e.RandomDrawn, op="sin", op_seq=10)],
        [m.exited_module(0, nr=2)],
        [m.node(1, "ExpBackward0", nr=0), m.node(2, "SinBackward0", nr=1)],
        [m.saved(1, 1, node=1, slot="result", nr=0), m.saved(2, 2, node=2, slot="self", nr=1)],
        [m.fact(e.TensorMoved, saved_id=saved_id, device="cpu") for saved_id in (1, 2)],
        [m.fact(e.ContextTensorKept, node_id=n, attribute="x", tensor_id=n) for n in (1, 2)],
        m.bumped("add_", op_seq=7),
        m.bumped("add_", op_seq=None),
        [m.backward(roots=(2,)), m.ran(2), m.ran(1), m.unpacked(1, node=1), m.unpacked(2, node=2)],
        m.entered(call=2),
        m.recompute(node=2),
        m.raised("RuntimeError", node=2, backward=1),
        m.backward_ended(failed=True),
        m.ended(),
    )  # fmt: skip


def test_events_of_other_modules_are_omitted(log):
    part = within(log, "a")
    assert [op.op for op in part.of(e.OpCalled)] == ["aten.exp.default"]
    assert [draw.op for draw in part.of(e.RandomDrawn)] == ["exp"]
    assert [node.node_name for node in part.of(e.NodeSeen)] == ["ExpBackward0"]
    assert [call.module_id for call in part.of(e.ModuleEntered)] == [1]
    assert len(part.of(e.ModuleExited)) == 1
    for kind in (e.TensorSaved, e.TensorMoved, e.TensorUnpacked):
        assert [event.saved_id for event in part.of(kind)] == [1]
    for kind in (e.ContextTensorKept, e.NodeStarted, e.NodeFinished):
        assert [event.node_id for event in part.of(kind)] == [1]


def test_unattributed_writes_definitions_regions_and_errors_are_kept(log):
    part = within(log, "a")
    assert [bump.op_seq for bump in part.of(e.VersionBumped)] == [7, None]
    for kind in (e.ModuleSeen, e.TensorSeen, e.BackwardStarted, e.BackwardEnded, e.RegionEntered,
                 e.RecomputeStarted, e.ErrorRaised):  # fmt: skip
        assert part.of(kind) == log.of(kind)


def test_calls_inside_a_module_belong_to_it(log):
    assert [call.module_id for call in within(log, "").of(e.ModuleEntered)] == [0, 1, 2]


def test_filtered_log_has_a_notice_and_its_event_count(log):
    part = within(log, "b")
    assert "modules named 'b'" in part.of(e.RecorderLimited)[-1].message
    assert part.of(e.RecordingEnded)[-1].event_count == len(part) - 1
