"""Rules about recomputations that differ without an exception."""

from __future__ import annotations

from make_log import (
    backward,
    backward_ended,
    bumped,
    entered,
    exited,
    fact,
    node,
    op,
    parameter,
    raised,
    recompute,
    recomputed,
    saved,
    started,
    state_change,
    unpacked,
    value,
)
from run_rule import lines, run_rule

from autogradviz import events as e
from autogradviz.diagnose.rules.checkpoint_effects_repeated import (
    checkpoint_effect_repeated,
    checkpoint_side_effects,
)
from autogradviz.diagnose.rules.checkpoint_values import (
    checkpoint_captured_tensor_mutated,
    checkpoint_random_not_restored,
)
from autogradviz.diagnose.rules.recomputed_saves_overwritten import recomputed_save_overwritten
from autogradviz.diagnose.rules.saved_tensors_written import saved_tensor_mutated


def region(*inside, between=(), again=(), early_stop=True, **fields):
    """A region with ops in its forward, between forward and backward, and in its recomputation."""
    return [
        entered(4, at="t.py:9", early_stop=early_stop, **fields),
        inside,
        exited(4),
        between,
        node(7, "SumBackward0"),
        backward(roots=(7,)),
        recompute(1, 4),
        again,
        recomputed(1),
    ]


# --- checkpoint-captured-tensor-mutated ---------------------------------------------------------


def captured(*between):
    return run_rule(
        checkpoint_captured_tensor_mutated,
        parameter(1, "weight"),
        region(
            op("mm", (3,), inputs=(1, 2), nr=1, at="t.py:2", region=4),
            between=between,
            again=op("mm", (5,), inputs=(1, 2), at="t.py:2", region=4, recompute=1),
        ),
    )


def test_weight_written_after_the_forward_is_reported():
    (finding,) = captured(op("mul_", (1,), inputs=(1,), writes=(1,), at="t.py:5"))
    assert finding.slug == "checkpoint-captured-tensor-mutated"
    assert lines(finding) == ("t.py:5", "t.py:2")
    assert (finding.confidence, finding.region_id) == ("certain", 4)
    assert finding.title == "weight changed before the region that reads it was recomputed"


def test_optimizer_write_has_its_own_fix():
    place = ("torch/optim/sgd.py:9", "t.py:5")
    (finding,) = captured(op("add_", (1,), inputs=(1,), writes=(1,), at=place))
    assert "step()" in finding.fix


def test_weight_that_is_only_read_gives_no_finding():
    assert captured(op("mul", (6,), inputs=(1,), at="t.py:5")) == []


def copied(source, *, write=(1,)):
    return op("copy_", (1,), inputs=(1, source), writes=write, at="t.py:5")


def captured_copy(*between):
    return run_rule(
        checkpoint_captured_tensor_mutated,
        copied(7),
        region(
            op("mm", (3,), inputs=(1, 2), nr=1, at="t.py:2", region=4),
            between=between,
            again=op("mm", (5,), inputs=(1, 2), at="t.py:2", region=4, recompute=1),
        ),
    )


def test_copy_of_the_same_values_again_is_no_finding():
    assert captured_copy(copied(7), copied(7)) == []


def test_copy_of_other_values_is_reported():
    assert len(captured_copy(copied(8))) == 1
    assert len(captured_copy(op("mul_", (7,), inputs=(7,), writes=(7,)), copied(7))) == 1
    assert len(captured_copy(op("mul_", (1,), inputs=(1,), writes=(1,)), copied(7))) == 1


# --- checkpoint-effect-repeated -----------------------------------------------------------------


def repeated(**again):
    add = {"inputs": (1,), "writes": (1,), "at": "t.py:3", "region": 4}
    return run_rule(
        checkpoint_effect_repeated,
        parameter(1, "mean", buffer=True),
        op("zeros", (1,)),
        region(
            op("add_", (1,), output_hashes=(5,), **add),
            op("mul", (2,), inputs=(1,), nr=1, at="t.py:4", region=4),
            again=op("add_", (1,), recompute=1, **{"output_hashes": (6,), **again}, **add),
        ),
    )


def test_buffer_written_by_both_runs_is_reported():
    (finding,) = repeated()
    assert finding.slug == "checkpoint-effect-repeated"
    assert lines(finding) == ("t.py:3", "t.py:4")
    assert finding.confidence == "certain"
    assert finding.title == "mean was updated twice: in forward and again in recomputation"


def test_buffer_with_equal_values_in_both_runs_gives_no_finding():
    assert repeated(output_hashes=(5,)) == []


def repeated_with(read, again):
    """A buffer written by both runs, and a product with the parameter that each run reads."""
    add = {"inputs": (1,), "writes": (1,), "at": "t.py:3", "region": 4}
    mul = {"inputs": (9,), "nr": 1, "at": "t.py:4", "region": 4}
    return run_rule(
        checkpoint_effect_repeated,
        parameter(1, "mean", buffer=True),
        parameter(7, "up.weight"),
        parameter(8, "down.weight"),
        op("zeros", (1,)),
        region(
            op("add_", (1,), **add),
            op("mul", (2,), **{**mul, "inputs": (read,)}),
            again=[
                op("add_", (1,), recompute=1, **add),
                op("mul", (3,), recompute=1, **{**mul, "inputs": (again,)}),
            ],
        ),
    )


def test_gradients_are_right_only_if_the_recomputation_reads_the_same():
    right, wrong = (" ".join(repeated_with(7, each)[0].explanation.split()) for each in (7, 8))
    assert "Gradients are right; running statistics, counters and caches drift." in right
    assert "Gradients are right" not in wrong
    assert "Running statistics, counters and caches drift." in wrong


def test_an_update_is_less_certain_than_other_inputs():
    assert [repeated_with(7, each)[0].confidence for each in (7, 8)] == ["certain", "likely"]


def side_effect(before, after):
    return run_rule(
        checkpoint_side_effects,
        region(op("exp", (2,), nr=1, at="t.py:3", region=4)),
        state_change(
            e.EffectRepeated, ("self", "calls"), before, after, recompute_id=1, region_id=4,
            at="t.py:4",
        ),
    )  # fmt: skip


def test_counter_incremented_by_both_runs_is_a_hint():
    (finding,) = side_effect(value("1", 1.0), value("2", 2.0))
    assert finding.slug == "checkpoint-effect-repeated"
    assert str(finding.culprit) == "t.py:4"
    assert (finding.confidence, finding.region_id) == ("hint", 4)
    assert finding.title.startswith("self.calls was changed twice")


def test_non_numeric_state_gives_no_finding():
    assert side_effect(value("'a'"), value("'b'")) == []


# --- hidden-write: a recomputed save -------------------------------------------------------------


def overwritten(storage):
    """A recomputed save, and an op of the region that writes a tensor before the unpack."""
    inside = {"region": 4}
    return run_rule(
        recomputed_save_overwritten,
        region(
            op("exp", (2,), inputs=(1,), nr=1, at="t.py:2", **inside),
            saved(1, 2, nr=1, node=7, slot="result", by="checkpoint", position=0, **inside),
            again=[
                op("exp", (3,), inputs=(1,), nr=5, at="t.py:2", recompute=1, **inside),
                saved(2, 3, nr=5, by="recompute", recompute=1, position=0, **inside),
                op("mul_", (storage,), inputs=(storage,), writes=(storage,), at="t.py:3",
                   recompute=1, **inside),
            ],
        ),
        unpacked(1, node=7),
    )  # fmt: skip


def test_write_to_a_recomputed_save_is_reported():
    (finding,) = overwritten(3)
    assert finding.slug == "hidden-write"
    assert lines(finding) == ("t.py:3", "t.py:2")
    assert (finding.confidence, finding.region_id) == ("likely", 4)


def test_write_to_another_tensor_gives_no_finding():
    assert overwritten(9) == []


# --- checkpoint-random-not-restored, checkpoint-random-state -------------------------------------


def test_dropout_without_preserved_state_is_reported():
    draw = {"inputs": (1,), "at": "t.py:3", "region": 4}
    (finding,) = run_rule(
        checkpoint_random_not_restored,
        region(
            op("native_dropout", (2,), nr=1, **draw),  # event 2
            again=op("native_dropout", (3,), recompute=1, **draw),  # event 7
        ),
        [fact(e.RandomDrawn, op_seq=seq) for seq in (2, 7)],
    )
    assert finding.slug == "checkpoint-random-not-restored"
    assert lines(finding) == ("t.py:9", "t.py:3")
    assert finding.confidence == "certain"
    assert "its gradients belong to those" in finding.explanation


def test_number_from_the_python_generator_is_reported(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import random\n\ndef forward(x):\n    return x * random.random()\n")
    place = {"inputs": (1,), "at": f"{script}:4", "region": 4}
    (finding,) = run_rule(
        checkpoint_random_not_restored,
        region(
            op("mul", (2,), nr=1, **place),
            again=[
                state_change(
                    e.StateChanged,
                    ("python random",),
                    value("state 1"),
                    value("state 2"),
                    state_kind="random",
                    recompute_id=1,
                    in_forward=True,
                ),
                op("mul", (3,), recompute=1, **place),
            ],
        ),
    )
    assert finding.slug == "checkpoint-random-state"
    assert lines(finding) == (f"{script}:4", "t.py:9")
    assert finding.confidence == "hint"  # without fingerprints


# --- checkpoint-argument-mutated ----------------------------------------------------------------

INPLACE = "one of the variables has been modified by an inplace operation"


def argument(*, inside=(), after=()):
    return run_rule(
        saved_tensor_mutated,
        entered(4, at="t.py:9"),
        saved(1, 1, by="checkpoint", region=4),
        op("exp", (2,), inputs=(1,), nr=1, at="t.py:2", region=4),
        inside,
        saved(2, 2, by="checkpoint", region=4, position=0, node=7),
        exited(4),
        after,
        node(7, "ExpBackward0", nr=1),
        backward(roots=(7,)),
        started(7),
        unpacked(1, version=0, seen=1, failed=True),
        unpacked(2, node=7, failed=True),
        backward_ended(failed=True),
        raised("RuntimeError", INPLACE, backward=1),
    )


def write(**fields):
    return [op("mul_", (1,), inputs=(1,), writes=(1,), **fields), bumped("mul_", 1)]


def test_argument_written_after_the_forward_is_reported():
    (finding,) = argument(after=write(at="t.py:11"))
    assert finding.slug == "checkpoint-argument-mutated"
    assert lines(finding) == ("t.py:11", "t.py:9")
    assert finding.title == "An argument of block was written before the region was recomputed"


def test_region_that_writes_its_own_argument_is_reported():
    (finding,) = argument(inside=write(at="t.py:3", region=4))
    assert finding.slug == "checkpoint-argument-mutated"
    assert lines(finding) == ("t.py:3", "t.py:9")
    assert finding.title == "block writes its own argument, and will be recomputed"
