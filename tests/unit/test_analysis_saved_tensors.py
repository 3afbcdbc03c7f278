"""Saved tensors, their histories and their memory."""

from __future__ import annotations

import pytest
from make_log import (
    backward,
    backward_ended,
    bumped,
    cloned,
    entered,
    exited,
    fact,
    make_log,
    node,
    op,
    parameter,
    raised,
    recompute,
    recomputed,
    released,
    saved,
    slot,
    started,
    tensor,
    unpacked,
)

import autogradviz
from autogradviz.analysis import Analysis
from autogradviz.events import SavedStorageFreed, TensorMoved


def history_of(*facts):
    (history,) = Analysis(make_log(*facts)).histories
    return [(entry.kind, entry.version, entry.ok) for entry in history.entries]


def test_save_through_hooks_gets_its_node_and_slot_later():
    model = Analysis(
        make_log(
            op("exp", (1,), nr=2, at="train.py:1"),
            saved(1, nr=2, by="user", at="train.py:1"),
            node(5, "ExpBackward0", nr=2),
            slot(1, 5, "result"),
        )
    )
    tensor = model.saved[1]
    assert (tensor.node_id, tensor.slot, tensor.op, tensor.saved_seq) == (
        5,
        "result",
        model.ops[0],
        1,
    )


def test_save_without_an_op_has_its_recorded_line():
    model = Analysis(make_log(saved(1, by="user", at="a.py:1"), saved(2, by="pytorch")))
    assert [str(s.location) for s in model.saved.values()] == ["a.py:1", "None"]


def test_save_is_not_assigned_to_an_op_of_another_thread():
    model = Analysis(make_log(op("exp", (1,), nr=2), saved(1, nr=2, thread=1, by="user")))
    assert model.saved[1].op is None


def test_recomputed_save_has_the_slot_of_the_forward_save_at_its_position():
    model = Analysis(
        make_log(
            entered(1),
            op("exp", (1,), nr=0, region=1),
            saved(1, 1, nr=0, by="checkpoint", region=1, position=0),
            op("mul", (2,), nr=1, region=1),
            saved(2, 2, nr=1, by="checkpoint", region=1, position=1),
            exited(1),
            slot(1, 10, "result"),
            slot(2, 11, "self"),
            recompute(1, 1),
            op("exp", (3,), nr=5, region=1, recompute=1),
            saved(3, 3, nr=5, by="recompute", region=1, recompute=1, position=0),
            op("sin", (4,), nr=6, region=1, recompute=1),
            saved(4, 4, nr=6, by="recompute", region=1, recompute=1, position=1),
            recomputed(1),
        )
    )
    assert {i: s.slot for i, s in model.saved.items()} == {
        1: "result",
        2: "self",
        3: "result",
        4: None,
    }


def recomputed_once(*after):
    return Analysis(
        make_log(
            entered(1),
            saved(1, 1, by="checkpoint", region=1, position=0),
            exited(1),
            recompute(1, 1),
            saved(2, 2, by="recompute", region=1, recompute=1, position=0),
            saved(3, 3, by="recompute", region=1, recompute=1, position=1),
            recomputed(1),
            *after,
        )
    )


def test_recomputed_save_is_kept_until_the_forward_save_is_unpacked():
    model = recomputed_once(unpacked(1), released(1))
    assert {i: s.released_seq for i, s in model.saved.items()} == {1: 9, 2: 9, 3: 6}
    assert (model.memory.seqs, model.memory.nbytes) == ((5, 6, 9), (32, 32, 0))


def test_recomputed_save_is_released_after_the_unpack_with_a_retained_graph():
    assert recomputed_once(unpacked(1)).saved[2].released_seq == 8
    assert recomputed_once().saved[2].released_seq is None


def test_unpack_belongs_to_the_backward_of_its_thread():
    model = Analysis(
        make_log(
            saved(1),
            backward(1),
            unpacked(1),
            backward(2, parent=1),
            unpacked(1),
            backward_ended(2),
            unpacked(1),
            started(7, backward=1, thread=3),
            unpacked(1, thread=3),
            backward_ended(1),
            unpacked(1),
        )
    )
    assert [u.backward_id for u in model.saved[1].unpacks] == [1, 2, 1, 1, None]


def test_write_between_save_and_unpack_is_in_the_history():
    assert history_of(saved(1, version=0), bumped("add_"), unpacked(1, seen=1), released(1)) == [
        ("saved", 0, True),
        ("written", 1, True),
        ("unpacked", 1, False),
        ("released", None, True),
    ]


def test_failed_unpack_is_not_ok_for_any_versions():
    assert history_of(saved(1), unpacked(1, failed=True))[1] == ("unpacked", 0, False)


def test_op_that_writes_and_saves_its_result_writes_first():
    assert history_of(
        op("exp_", (1,), nr=0, writes=(1,)),
        bumped("exp_", op_seq=1),
        node(1, "ExpBackward0", nr=0),
        saved(1, 1, node=1, version=1),
    ) == [("written", 1, True), ("saved", 1, True)]


def test_views_share_a_history_and_unsaved_storages_have_none():
    model = Analysis(
        make_log(
            tensor(1),
            tensor(2, (2, 4), storage=1),
            saved(1, 1),
            bumped("mul_", 2, storage=1, at="train.py:8"),
            bumped("mul_", 3),
        )
    )
    (history,) = model.histories
    assert (history.storage_id, history.nbytes, [t.tensor_id for t in history.tensors]) == (
        1,
        32,
        [1, 2],
    )
    assert [(e.seq, e.op, str(e.location)) for e in history.entries] == [
        (3, "", "None"),
        (4, "mul_", "train.py:8"),
    ]


def test_clone_made_for_a_mutation_is_part_of_the_history():
    assert history_of(cloned(2, 1, at="train.py:3"), bumped("add_", 1)) == [
        ("cloned", None, True),
        ("written", 1, True),
    ]


def test_memory_counts_a_storage_from_its_first_save_to_its_last_release():
    curve = Analysis(
        make_log(saved(1, 1), saved(2, 1), saved(3, 2), released(1), released(2), released(3))
    ).memory
    assert (curve.seqs, curve.nbytes, curve.times_ns, curve.peak) == (
        (1, 3, 5, 6),
        (32, 64, 32, 0),
        (1000, 3000, 5000, 6000),
        1,
    )


def test_memory_starts_at_the_op_and_not_at_its_save_event():
    curve = Analysis(
        make_log(op("exp", (1,), nr=0), node(1, "ExpBackward0", nr=0), saved(1, 1, node=1))
    ).memory
    assert (curve.seqs, curve.times_ns) == ((1,), (1000,))


def test_parameters_and_tensors_that_checkpoint_packed_or_hooks_copied_use_no_memory():
    curve = Analysis(
        make_log(
            parameter(1, "weight"),
            saved(1, 1),
            saved(2, 2, by="checkpoint", position=0),
            saved(3, 3, by="offload"),
            fact(TensorMoved, saved_id=3, device="cpu"),
            saved(4, 4, by="user"),
            fact(SavedStorageFreed, saved_id=4),
            released(2),
        )
    ).memory
    assert (curve.nbytes, curve.peak) == ((), -1)


def test_arguments_of_a_region_count_until_their_release():
    kept = saved(1, 1, by="checkpoint", slot="args[0]", region=1)
    model = Analysis(make_log(entered(1), kept, released(1)))
    assert model.memory.nbytes == (32, 0)
    assert model.regions[0].saved == ()


def test_storage_saved_again_after_its_release_counts_again():
    curve = Analysis(make_log(saved(1, 1), released(1), saved(2, 1), released(2))).memory
    assert curve.nbytes == (32, 0, 32, 0)


def recomputed_otherwise():
    """A region whose recomputation runs gelu at line 5 where forward ran sigmoid at line 3."""
    one, two = {"region": 1}, {"region": 1, "recompute": 1}
    return make_log(
        tensor(1),
        tensor(2),
        tensor(3),
        tensor(4),
        backward(),
        entered(1),
        op("exp", (1,), nr=0, node=10, at="t.py:2", **one),
        saved(1, 1, nr=0, by="checkpoint", position=0, **one),
        op("sigmoid", (2,), nr=1, node=11, at="t.py:3", **one),
        saved(2, 2, nr=1, by="checkpoint", position=1, **one),
        exited(1),
        node(10, "ExpBackward0", nr=0),
        node(11, "SigmoidBackward0", nr=1, to=[10]),
        slot(1, 10, "result"),
        slot(2, 11, "result"),
        started(11),
        recompute(1, 1),
        op("exp", (3,), nr=5, at="t.py:2", **two),
        saved(3, 3, nr=5, by="recompute", position=0, **two),
        op("gelu", (4,), nr=6, at="t.py:5", **two),
        saved(4, 4, nr=6, by="recompute", position=1, **two),
        recomputed(1),
        backward_ended(failed=True),
    )


def test_what_another_op_recomputed_has_the_line_of_that_op():
    storages = Analysis(recomputed_otherwise()).saved_memory.storages
    assert [(each.lineno, each.node_id, each.other_op) for each in storages] == [
        (2, 10, False),
        (5, 11, True),
    ]


def test_no_view_says_that_a_node_got_what_another_op_recomputed():
    scene = autogradviz.Trace(recomputed_otherwise())._viewer_scene
    assert [(each.slots, each.lineno) for each in scene.storages] == [
        (("ExpBackward0.result",), 2),
        (("gelu",), 5),
    ]
    assert [(each.slot, each.state) for each in scene.saved_badges] == [
        ("result", "recomputed"),
        ("result", "freed"),
    ]


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ([], {}),
        ([bumped("mul_")], {1: False}),
        ([bumped("mul_"), raised("KeyError")], {1: True}),
        ([bumped("mul_"), unpacked(1, seen=1)], {1: True}),
        ([bumped("mul_"), unpacked(1, seen=None)], {1: True}),
        ([unpacked(1), bumped("mul_")], {1: False}),
        ([unpacked(1), released(1), bumped("mul_")], {}),
    ],
)
def test_saved_tensors_that_were_written_are_those_that_a_backward_reads_and_others(
    later, expected
):
    log = make_log(tensor(1), saved(1, 1, node=10), node(10, "ExpBackward0"), *later)
    assert Analysis(log).written_saves == expected


def test_sentence_and_number_of_written_saves_agree():
    facts = tensor(1), saved(1, 1, node=10), node(10, "ExpBackward0"), bumped("mul_")
    scene = autogradviz.Trace(make_log(*facts, unpacked(1, seen=1)))._viewer_scene
    [sentence] = [each.text for each in scene.facts if each.topic == "writes"]
    figures = [each.figure for each in scene.evidence if each.topic == "writes"]
    assert sentence == "1 of 1 saved tensors were written between save and use"
    assert figures == ["1 of 1", "0 of 1"]
