"""Rules about checkpoints with ``use_reentrant=True``."""

from __future__ import annotations

import pytest
from make_log import (
    backward,
    backward_ended,
    entered,
    exited,
    fact,
    leaf,
    node,
    op,
    parameter,
    raised,
    recompute,
    recomputed,
    started,
)
from run_rule import lines, run_rule

from autogradviz import events as e
from autogradviz.diagnose.rules.reentrant_checkpoints import (
    reentrant_captured_graph,
    reentrant_detached_output,
    reentrant_needs_backward,
    reentrant_no_grad_input,
    repeated_accumulation_raised,
    repeated_hook,
    side_channel_to_loss,
    side_channel_to_region,
)

REGION = "CheckpointFunctionBackward"


def region(*forward, again=(), region_id=4, at="t.py:9"):
    """A reentrant region, its node, and its recomputation in a nested backward."""
    return (
        [entered(region_id, reentrant=True, at=at), forward, exited(region_id)],
        [
            recompute(region_id, region_id),
            again,
            recomputed(region_id),
        ],
    )


# --- reentrant-needs-backward -------------------------------------------------------------------


def test_region_whose_node_failed_is_reported():
    forward, _ = region()
    (finding,) = run_rule(
        reentrant_needs_backward,
        forward,
        op("mul", (2,), nr=1, at="t.py:9"),
        node(7, REGION, nr=1),
        backward(roots=(7,), at="t.py:10"),
        started(7),
        raised(
            "RuntimeError", "Checkpointing is not compatible with .grad() or inputs", at="t.py:10"
        ),
    )
    assert finding.slug == "reentrant-needs-backward"
    assert lines(finding) == ("t.py:9", "t.py:10")
    assert (finding.confidence, finding.nodes) == ("certain", (7,))


# --- reentrant-detached-output ------------------------------------------------------------------


def test_detach_inside_the_region_is_reported():
    inside = {"region": 4}
    forward, again = region(
        op("mm", (3,), inputs=(1,), at="t.py:2", **inside),
        again=[
            op("mm", (4,), inputs=(1,), nr=5, at="t.py:2", recompute=4, **inside),
            op("detach", (4,), inputs=(4,), at="t.py:3", recompute=4, **inside),
        ],
    )
    (finding,) = run_rule(
        reentrant_detached_output,
        parameter(1, "w"),
        forward,
        backward(at="t.py:10"),
        again,
        raised("RuntimeError", "none of output has requires_grad=True", at="t.py:10"),
    )
    assert finding.slug == "reentrant-detached-output"
    assert lines(finding) == ("t.py:3", "t.py:2")
    assert finding.title == "No result of block requires a gradient: its graph ended at detach"


# --- reentrant-captured-graph -------------------------------------------------------------------


def captured(*, argument):
    inside = {"region": 4}
    forward, again = region(
        op("mul", (4,), inputs=(3, 2), at="t.py:5", **inside),
        again=op("mul", (5,), inputs=(3, 2), nr=5, at="t.py:5", recompute=4, **inside),
    )
    return run_rule(
        reentrant_captured_graph,
        parameter(1, "w"),
        op("exp", (2,), inputs=(1,), nr=1, node=6, at="t.py:2"),
        node(6, "ExpBackward0", nr=1),
        forward,
        node(7, REGION, nr=2, to=(6,) if argument else ()),
        backward(roots=(7,), at="t.py:10"),
        again,
        raised(
            "RuntimeError", "Trying to backward through the graph a second time", node=6,
            at="t.py:10",
        ),
    )  # fmt: skip


def test_region_that_reads_a_graph_not_passed_as_argument_is_reported():
    (finding,) = captured(argument=False)
    assert finding.slug == "reentrant-captured-graph"
    assert lines(finding) == ("t.py:9", "t.py:2")
    assert finding.title == "block reads a tensor with a graph that is not an argument"
    assert finding.region_id == 4


def test_argument_gives_no_finding():
    assert captured(argument=True) == []


# --- reentrant-side-channel ---------------------------------------------------------------------


def side_channel(*, detached=False):
    """A region that stores tensor 3, which the loss then uses without a gradient path."""
    inside = {"region": 4}
    forward, again = region(
        op("exp", (3,), inputs=(2,), at="t.py:3", **inside),
        op("mul", (4,), inputs=(2,), at="t.py:4", **inside),
        again=[
            op("exp", (13,), inputs=(2,), nr=5, at="t.py:3", recompute=4, **inside),
            op("mul", (14,), inputs=(2,), nr=6, at="t.py:4", recompute=4, **inside),
        ],
    )
    return run_rule(
        side_channel_to_loss,
        forward,
        op("block", (4,), inputs=(2,), nr=1, node=7, at="t.py:9"),
        node(7, REGION, nr=1),
        op("detach", (3,), inputs=(3,), at="t.py:10") if detached else (),
        op("add", (8,), inputs=(4, 3), nr=2, node=8, at="t.py:11"),
        node(8, "AddBackward0", nr=2, to=(7, e.NO_ID)),
        backward(roots=(8,), root_tensor_ids=(8,), at="t.py:12"),
        again,
    )


def test_tensor_from_inside_a_region_used_by_the_loss_is_reported():
    (finding,) = side_channel()
    assert finding.slug == "reentrant-side-channel"
    assert lines(finding) == ("t.py:9", "t.py:3")
    assert finding.title == (
        "The loss uses a tensor that block did not return: its gradient is lost"
    )


def test_tensor_from_inside_a_region_used_by_another_region_is_reported():
    first, first_again = region(
        op("exp", (3,), inputs=(2,), at="t.py:3", region=4),
        again=op("exp", (13,), inputs=(2,), nr=5, at="t.py:3", region=4, recompute=4),
    )
    second, second_again = region(
        op("mul", (5,), inputs=(4, 3), at="t.py:6", region=5),
        again=[
            op("mul", (15,), inputs=(4, 3), nr=7, node=9, at="t.py:6", region=5, recompute=5),
            node(9, "MulBackward0", nr=7, to=(e.NO_ID, e.NO_ID)),
        ],
        region_id=5,
        at="t.py:10",
    )
    (finding,) = run_rule(
        side_channel_to_region, first, second, backward(at="t.py:12"), second_again, first_again
    )
    assert finding.slug == "reentrant-side-channel"
    assert lines(finding) == ("t.py:9", "t.py:6")
    assert finding.region_id == 4


# --- reentrant-hook-repeated --------------------------------------------------------------------


def hook(*, failed=False, parent=1, kind="post_accumulate_grad", error=()):
    """A hook of leaf 1 that runs in a backward and in one nested in it."""
    forward, again = region(op("mm", (3,), inputs=(1,), at="t.py:3", region=4))
    same = {"hook_id": 5, "hook_kind": kind}
    return [
        parameter(1, "w"),
        fact(e.HookRegistered, hook_name="clip", tensor_id=1, at="t.py:1", **same),
        forward,
        backward(1, at="t.py:10"),
        fact(e.HookRan, backward_id=1, **same),
        backward(2, parent=parent),
        again,
        fact(e.HookRan, backward_id=2, failed=failed, **same),
        backward_ended(2),
        error,
    ]


def test_hook_that_also_ran_in_a_nested_backward_is_reported():
    (finding,) = run_rule(repeated_hook, hook())
    assert finding.slug == "reentrant-hook-repeated"
    assert lines(finding) == ("t.py:9", "t.py:3")
    assert finding.confidence == "likely"
    assert finding.title == "clip ran 2 times in one backward, with partial gradients"


def test_read_only_hook_is_a_hint():
    (finding,) = run_rule(repeated_hook, hook(kind="tensor"))
    assert finding.confidence == "hint"


def test_hook_that_ran_in_two_separate_backwards_gives_no_finding():
    assert run_rule(repeated_hook, hook(parent=None)) == []


def test_hook_that_raised_in_its_second_run_is_reported():
    error = raised("ValueError", "stepped twice", at="t.py:2")
    (finding,) = run_rule(repeated_accumulation_raised, hook(failed=True, error=error))
    assert lines(finding) == ("t.py:9", "t.py:3")
    assert finding.confidence == "likely"
    assert "w accumulated its gradient more than once" in finding.title


def test_error_of_the_ddp_reducer_leads_to_the_shared_leaf():
    forward, again = region(op("mm", (3,), inputs=(1,), at="t.py:3", region=4))
    (finding,) = run_rule(
        repeated_accumulation_raised,
        parameter(1, "w"),
        forward,
        leaf(8, 1),
        backward(1, at="t.py:10"),
        again,
        raised("RuntimeError", "Expected to mark a variable ready only once.", node=8),
    )
    assert (lines(finding), finding.confidence) == (("t.py:9", "t.py:3"), "certain")


def test_another_error_gives_no_finding():
    error = raised("ValueError", "something else", at="t.py:2")
    assert run_rule(repeated_accumulation_raised, hook(error=error)) == []


# --- reentrant-no-grad-input, reentrant-nested-results -------------------------------------------


def cut_off(reason, *, later=True, trainable=True):
    forward, _ = region(op("mm", (3,), inputs=(1,), at="t.py:3", region=4))
    return run_rule(
        reentrant_no_grad_input,
        parameter(1, "w", buffer=not trainable),
        forward,
        fact(e.RegionCutOff, region_id=4, cut_off=reason),
        backward(at="t.py:10") if later else (),
    )


@pytest.mark.parametrize(
    ("reason", "slug"),
    [("arguments", "reentrant-no-grad-input"), ("results", "reentrant-nested-results")],
)
def test_region_without_a_node_and_with_a_parameter_is_reported(reason, slug):
    (finding,) = cut_off(reason)
    assert finding.slug == slug
    assert lines(finding) == ("t.py:9", "t.py:3")
    assert finding.confidence == "certain"


def test_region_without_parameters_or_without_a_backward_gives_no_finding():
    assert cut_off("arguments", trainable=False) == []
    assert cut_off("arguments", later=False) == []
