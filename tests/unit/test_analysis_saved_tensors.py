"""Saved tensors, their histories and the memory that they keep."""

from __future__ import annotations

from make_log import (
    backward,
    backward_ended,
    bumped,
    cloned,
    entered,
    exited,
    make_log,
    node,
    op,
    parameter,
    recompute,
    recomputed,
    released,
    saved,
    slot,
    started,
    tensor,
    unpacked,
)

from autogradviz.analysis import Analysis


def history_of(*facts):
    (history,) = Analysis(make_log(*facts)).histories
    return [(entry.kind, entry.version, entry.ok) for entry in history.entries]


def test_a_save_through_hooks_learns_its_node_and_slot_later():
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


def test_a_save_without_an_op_has_its_own_line_where_one_was_recorded():
    model = Analysis(make_log(saved(1, by="user", at="a.py:1"), saved(2, by="pytorch")))
    assert [str(s.location) for s in model.saved.values()] == ["a.py:1", "None"]


def test_a_save_on_another_thread_is_not_given_this_threads_op():
    model = Analysis(make_log(op("exp", (1,), nr=2), saved(1, nr=2, thread=1, by="user")))
    assert model.saved[1].op is None


def test_a_recomputed_save_takes_the_slot_of_the_forward_save_at_its_position():
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


def test_a_recomputed_save_is_kept_until_the_forward_save_has_been_taken_back():
    model = recomputed_once(unpacked(1), released(1))
    assert {i: s.released_seq for i, s in model.saved.items()} == {1: 9, 2: 9, 3: 6}
    assert (model.memory.seqs, model.memory.nbytes) == ((5, 6, 9), (32, 32, 0))


def test_a_recomputed_save_is_dropped_after_the_unpack_when_the_graph_is_retained():
    assert recomputed_once(unpacked(1)).saved[2].released_seq == 8
    assert recomputed_once().saved[2].released_seq is None


def test_an_unpack_knows_the_backward_that_runs_on_its_thread():
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


def test_a_write_between_save_and_unpack_shows_in_the_history():
    assert history_of(saved(1, version=0), bumped("add_"), unpacked(1, seen=1), released(1)) == [
        ("saved", 0, True),
        ("written", 1, True),
        ("unpacked", 1, False),
        ("released", None, True),
    ]


def test_a_failed_unpack_is_not_ok_whatever_the_versions():
    assert history_of(saved(1), unpacked(1, failed=True))[1] == ("unpacked", 0, False)


def test_an_op_that_writes_and_saves_its_result_wrote_first():
    assert history_of(
        op("exp_", (1,), nr=0, writes=(1,)),
        bumped("exp_", op_seq=1),
        node(1, "ExpBackward0", nr=0),
        saved(1, 1, node=1, version=1),
    ) == [("written", 1, True), ("saved", 1, True)]


def test_views_share_one_history_and_storages_never_saved_have_none():
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


def test_a_clone_made_for_a_mutation_is_part_of_the_history():
    assert history_of(cloned(2, 1, at="train.py:3"), bumped("add_", 1)) == [
        ("cloned", None, True),
        ("written", 1, True),
    ]


def test_memory_counts_a_storage_once_from_its_first_save_to_its_last_release():
    curve = Analysis(
        make_log(saved(1, 1), saved(2, 1), saved(3, 2), released(1), released(2), released(3))
    ).memory
    assert (curve.seqs, curve.nbytes, curve.times_ns, curve.peak) == (
        (1, 3, 5, 6),
        (32, 64, 32, 0),
        (1000, 3000, 5000, 6000),
        1,
    )


def test_memory_starts_at_the_op_not_at_the_later_look():
    curve = Analysis(
        make_log(op("exp", (1,), nr=0), node(1, "ExpBackward0", nr=0), saved(1, 1, node=1))
    ).memory
    assert (curve.seqs, curve.times_ns) == ((1,), (1000,))


def test_parameters_and_what_checkpoint_and_offload_pack_keep_nothing():
    curve = Analysis(
        make_log(
            parameter(1, "weight"),
            saved(1, 1),
            saved(2, 2, by="checkpoint", position=0),
            saved(3, 3, by="offload"),
            released(2),
        )
    ).memory
    assert (curve.nbytes, curve.peak) == ((), -1)


def test_a_regions_arguments_count_until_they_are_released():
    kept = saved(1, 1, by="checkpoint", slot="args[0]", region=1)
    model = Analysis(make_log(entered(1), kept, released(1)))
    assert model.memory.nbytes == (32, 0)
    assert model.regions[0].saved == ()


def test_a_storage_saved_again_after_its_release_counts_again():
    curve = Analysis(make_log(saved(1, 1), released(1), saved(2, 1), released(2))).memory
    assert curve.nbytes == (32, 0, 32, 0)
