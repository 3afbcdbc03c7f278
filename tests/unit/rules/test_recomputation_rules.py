"""Rules about recomputations that raised, and about hand-written recomputation."""

from __future__ import annotations

import pytest
from make_log import (
    backward,
    entered,
    exited,
    fact,
    node,
    op,
    raised,
    recompute,
    recomputed,
    saved,
    started,
    state_change,
    tensor,
    unpacked,
    value,
)
from run_rule import lines, run_rule

from autogradviz import events as e
from autogradviz.diagnose.rules.checkpoint_errors import (
    checkpoint_mismatch,
    checkpoint_saves_misaligned,
    early_stop_caught,
)
from autogradviz.diagnose.rules.checkpoint_values import checkpoint_value_mismatch
from autogradviz.diagnose.rules.checkpoint_written_by_hand import custom_recompute
from autogradviz.diagnose.rules.selective_checkpoints import selective_cache_mutated

# --- checkpoint-state-changed, checkpoint-context-missing, checkpoint-not-repeatable ------------

SOURCE = """\
import time

def forward(x):
    if time.time() > limit:
        return x.sin()
    return (x * scales[0]).cos()
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def recomputation_raised(script, *changes):
    """A region whose recomputation raised, after changes of state."""
    return run_rule(
        checkpoint_mismatch,
        entered(4, at="t.py:9"),
        op("mul", (2,), inputs=(1,), nr=1, at=f"{script}:6", region=4),
        saved(1, 2, nr=1, node=7, slot="self", by="checkpoint", region=4, position=0),
        exited(4),
        node(7, "MulBackward0", nr=1),
        backward(roots=(7,), at="t.py:10"),
        started(7),
        recompute(1, 4),
        changes,
        recomputed(1, "error"),
        unpacked(1, node=7, failed=True),
        raised("IndexError", "pop from empty list", node=7, at=f"{script}:6"),
    )


def changed(kind, path, before, after, **fields):
    values = value(before), value(after)
    return state_change(
        e.StateChanged, path, *values, state_kind=kind, recompute_id=1, region_id=4, **fields
    )


def test_state_that_changed_since_the_forward_is_the_cause(script):
    place = changed("object", ("scales", "[0]"), "2", "3", at="t.py:5")
    (finding,) = recomputation_raised(script, place)
    assert finding.slug == "checkpoint-state-changed"
    assert lines(finding) == ("t.py:5", f"{script}:6")
    assert finding.title.startswith("Recomputation failed: ")
    assert (finding.confidence, finding.nodes, finding.region_id) == ("likely", (7,), 4)


def test_a_value_is_the_one_at_the_start_if_the_region_itself_changes_it(script):
    place = ("object", ("scales", "[0]"), "2", "5")
    (own,) = recomputation_raised(script, changed(*place, at="t.py:5", in_forward=True))
    (other,) = recomputation_raised(script, changed(*place, at="t.py:5", in_forward=False))
    assert own.title.endswith("scales was changed by line 5")
    assert other.title.endswith("scales was changed from 2 to 5 by line 5")


def test_mode_missing_in_the_recomputation_is_the_cause(script):
    (finding,) = recomputation_raised(
        script, changed("context", ("default dtype",), "float64", "float32", at="t.py:5")
    )
    assert finding.slug == "checkpoint-context-missing"


def test_clock_is_the_cause_if_no_state_changed(script):
    (finding,) = recomputation_raised(script)
    assert finding.slug == "checkpoint-not-repeatable"
    assert str(finding.culprit) == f"{script}:4"


# --- checkpoint-early-stop-caught ---------------------------------------------------------------


def test_handler_that_caught_the_early_stop_is_reported(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "def forward(x):\n    try:\n        return x.exp()\n    except Exception:\n        pass\n"
    )
    (finding,) = run_rule(
        early_stop_caught,
        entered(4, at="t.py:9"),
        op("exp", (2,), inputs=(1,), nr=1, at=f"{script}:3", region=4),
        saved(1, 2, nr=1, by="checkpoint", region=4, position=0, at=f"{script}:3"),
        exited(4),
        backward(at="t.py:10"),
        recompute(1, 4),
        recomputed(1),
        raised("AssertionError", "if target_frame.early_stop is set, ...", at="t.py:10"),
    )
    assert finding.slug == "checkpoint-early-stop-caught"
    assert lines(finding) == (f"{script}:4", f"{script}:3")


# --- selective-cache-mutated --------------------------------------------------------------------


def test_write_to_a_result_saved_by_the_policy_is_reported():
    (finding,) = run_rule(
        selective_cache_mutated,
        entered(4, at="t.py:9"),
        op("mm", (2,), inputs=(1,), nr=1, at="t.py:2", region=4),  # event 2
        fact(e.PolicyDecided, op="aten.mm.default", decision="must_save", cached=True, region_id=4,
             op_seq=2),
        exited(4),
        op("mul_", (2,), inputs=(2,), writes=(2,), at="t.py:5"),
        raised(
            "RuntimeError",
            "A tensor cached during selective activation checkpoint has been mutated",
            at="t.py:10",
        ),
    )  # fmt: skip
    assert finding.slug == "selective-cache-mutated"
    assert lines(finding) == ("t.py:5", "t.py:2")
    assert (finding.confidence, finding.region_id) == ("certain", 4)


# --- checkpoint-different-values ----------------------------------------------------------------


def values(*, second=6, inputs=(3, 3), between=()):
    place = {"at": "t.py:2", "region": 4, "inputs": (1,)}
    return run_rule(
        checkpoint_value_mismatch,
        entered(4, at="t.py:9"),
        op("sin", (2,), nr=1, input_hashes=inputs[:1], output_hashes=(5,), **place),
        exited(4),
        between,
        backward(at="t.py:10"),
        recompute(1, 4),
        op("sin", (3,), recompute=1, input_hashes=inputs[1:], output_hashes=(second,), **place),
        recomputed(1),
    )


def test_op_with_different_results_is_reported():
    (finding,) = values()
    assert finding.slug == "checkpoint-different-values"
    assert lines(finding) == ("t.py:2", "t.py:2")
    assert finding.region_id == 4
    assert finding.title == "block computed other values when it was recomputed"


def test_equal_results_give_no_finding():
    assert values(second=5) == []


def test_input_written_between_the_runs_gives_no_finding():
    write = op("mul_", (1,), inputs=(1,), writes=(1,), at="t.py:5")
    assert values(inputs=(3, 4), between=write) == []


# --- checkpoint-saves-shifted -------------------------------------------------------------------


def shifted(*again):
    """A region that saves the results of exp and sin; ``again`` are the recomputed ops."""
    line = {"cos": 7, "exp": 11, "sin": 12}

    def run(names, first, **fields):
        return [
            [
                op(name, (first + i,), inputs=(1,), nr=first + i, at=f"t.py:{line[name]}", region=4,
                   recompute=fields.get("recompute")),
                saved(first + i, first + i, nr=first + i, region=4, position=i, **fields),
            ]
            for i, name in enumerate(names)
        ]  # fmt: skip

    return run_rule(
        checkpoint_saves_misaligned,
        entered(4, at="t.py:9"),
        run(["exp", "sin"], 10, by="checkpoint", slot="result"),
        exited(4),
        [node(20 + i, "Backward0", nr=10 + i) for i in range(2)],
        backward(at="t.py:10"),
        recompute(1, 4),
        run(again, 30, by="recompute", recompute=1),
        recomputed(1, "early_stop"),
    )


def test_saves_of_different_ops_at_the_same_positions_are_reported():
    (finding,) = shifted("cos", "exp")
    assert finding.slug == "checkpoint-saves-shifted"
    assert lines(finding) == ("t.py:7", "t.py:11")
    assert "saved a tensor of cos" in finding.explanation
    assert finding.region_id == 4


def test_same_ops_give_no_finding():
    assert shifted("exp", "sin") == []


# --- handmade-checkpoint-differs ----------------------------------------------------------------


def frames(function, *linenos):
    """Stacks of one frame each, with the line number as the id."""
    return [
        [
            fact(e.FrameSeen, frame_id=100 + n, filename="t.py", lineno=n, function=function),
            fact(e.StackSeen, stack_id=100 + n, frame_ids=(100 + n,)),
        ]
        for n in linenos
    ]


def handmade(dtype, ran="Ckpt"):
    """A custom Function whose backward runs mm and relu again, after its own or another forward."""
    again = {"phase": "backward", "node": 7}
    return run_rule(
        custom_recompute,
        frames(f"{ran}.forward", 2, 3),
        node(8, f"{ran}Backward", nr=2),
        frames("Ckpt.backward", 6, 7),
        tensor(14, dtype=dtype),
        op("mm", (3,), inputs=(1, 2), stack_id=102),
        op("relu", (4,), inputs=(3,), stack_id=103),
        node(7, "CkptBackward", nr=1),
        backward(roots=(7,)),
        started(7),
        op("mm", (3,), inputs=(1, 2), nr=5, stack_id=106, **again),
        op("relu", (14,), inputs=(3,), nr=6, stack_id=107, **again),
    )


def test_recomputation_in_another_dtype_is_reported():
    (finding,) = handmade("bfloat16")
    assert finding.slug == "handmade-checkpoint-differs"
    assert lines(finding) == ("t.py:7", "t.py:3")
    assert finding.title == ("Ckpt.backward runs the forward again, and computes in another dtype")


def test_recomputation_by_another_function_is_reported():
    (finding,) = handmade("bfloat16", ran="Run")
    assert lines(finding) == ("t.py:7", "t.py:3")


@pytest.mark.parametrize("ran", ["Ckpt", "Run"])
def test_same_dtype_gives_no_finding(ran):
    assert handmade("float32", ran) == []
