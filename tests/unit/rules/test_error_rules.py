"""Rules about errors with a clear message and a traceback that ends at another line."""

from __future__ import annotations

from make_log import (
    backward,
    backward_ended,
    entered,
    exited,
    fact,
    finished,
    leaf,
    make_log,
    node,
    op,
    parameter,
    raised,
    ran,
    recompute,
    recomputed,
    saved,
    started,
    tensor,
    unpacked,
)
from run_rule import lines, run_rule

import autogradviz
from autogradviz import events as e
from autogradviz.diagnose.rules.backward_refused import graph_freed
from autogradviz.diagnose.rules.checkpoint_errors import (
    exec_group_overlap,
    saved_tensors_read_twice,
)
from autogradviz.diagnose.rules.operations_refused import operation_refused
from autogradviz.diagnose.rules.saved_tensor_hooks_wrong import mutation_context_left
from autogradviz.diagnose.rules.selective_checkpoints import selective_backward_twice

ONCE = "Unpack is being triggered for a tensor that was already unpacked once. "
OVERLAP = ONCE + "Performing two backward calls that overlap is not allowed"
SECOND_TIME = "Trying to backward through the graph a second time"


def failed_unpack(rule, error, message, *, first_read="t.py:6"):
    """A checkpointed tensor that is unpacked by one line, and again by the failing backward."""
    return run_rule(
        rule,
        entered(4, at="t.py:9"),
        op("exp", (2,), inputs=(1,), nr=1, at="t.py:2", region=4),
        saved(1, 2, nr=1, node=7, slot="result", by="checkpoint", region=4, position=0),
        exited(4),
        node(7, "ExpBackward0", nr=1),
        unpacked(1, node=7, at=first_read),
        backward(roots=(7,), at="t.py:10"),
        started(7),
        unpacked(1, node=7, failed=True, at="t.py:10"),
        raised(error, message, node=7, backward=1, at="t.py:10"),
    )


# --- exec-group-overlap -------------------------------------------------------------------------


def test_second_backward_in_an_exec_group_is_reported():
    (finding,) = failed_unpack(exec_group_overlap, "CheckpointError", OVERLAP)
    assert finding.slug == "exec-group-overlap"
    assert lines(finding) == ("t.py:10", "t.py:2")
    assert finding.title == "Two backwards in one GraphExecGroup both need ExpBackward0.result"
    assert (finding.confidence, finding.nodes, finding.region_id) == ("certain", (7,), 4)


# --- saved-tensors-read-twice -------------------------------------------------------------------


def test_line_that_unpacked_before_the_node_is_reported():
    (finding,) = failed_unpack(saved_tensors_read_twice, "CheckpointError", ONCE)
    assert finding.slug == "saved-tensors-read-twice"
    assert lines(finding) == ("t.py:6", "t.py:2")
    assert finding.title == "ExpBackward0.result was unpacked twice under checkpoint"


def test_failing_read_is_reported_if_no_earlier_line_unpacked():
    (finding,) = failed_unpack(
        saved_tensors_read_twice, "CheckpointError", ONCE, first_read="t.py:10"
    )
    assert lines(finding) == ("t.py:10", "t.py:2")
    assert "ctx.saved_tensors" in finding.fix


def test_overlap_in_an_exec_group_is_not_a_second_read():
    assert failed_unpack(saved_tensors_read_twice, "CheckpointError", OVERLAP) == []


# --- mutation-context-left ----------------------------------------------------------------------


def test_backward_outside_the_mutation_context_is_reported():
    message = "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context"
    (finding,) = failed_unpack(mutation_context_left, "AssertionError", message)
    assert finding.slug == "mutation-context-left"
    assert lines(finding) == ("t.py:10", "t.py:2")


# --- graph-freed --------------------------------------------------------------------------------


def freed(*between):
    return run_rule(
        graph_freed,
        parameter(1, "w"),
        op("mul", (2,), inputs=(1,), nr=1, at="t.py:2"),
        node(7, "MulBackward0", nr=1, to=(8,)),
        leaf(8, 1),
        backward(1, roots=(7,), at="t.py:5"),
        ran(7),
        backward_ended(1),
        between,
        backward(2, roots=(7,), at="t.py:6"),
        started(7, backward=2),
        raised("RuntimeError", SECOND_TIME, node=7, backward=2, at="t.py:6"),
    )


def test_first_backward_is_reported():
    (finding,) = freed()
    assert finding.slug == "graph-freed"
    assert lines(finding) == ("t.py:5", "t.py:2")
    # The first could keep the graph, or the second have its own: two lines to change.
    assert (finding.confidence, finding.nodes) == ("likely", (7,))
    assert "retain_graph=True" in finding.fix


def test_op_with_an_input_from_the_previous_step_is_reported():
    (finding,) = run_rule(
        graph_freed,
        parameter(1, "w"),
        op("mul", (2,), inputs=(1,), nr=1, at="t.py:2"),
        node(7, "MulBackward0", nr=1, to=(8,)),
        leaf(8, 1),
        backward(1, roots=(7,), at="t.py:5"),
        started(7),
        finished(7),
        backward_ended(1),
        op("mul", (3,), inputs=(2,), nr=2, at="t.py:2"),
        node(9, "MulBackward0", nr=2, to=(7,)),
        backward(2, roots=(9,), at="t.py:5"),
        started(9, backward=2),
        raised("RuntimeError", SECOND_TIME, node=7, backward=2, at="t.py:5"),
    )
    assert lines(finding) == ("t.py:2", "t.py:2")
    assert finding.fix.startswith("hidden = hidden.detach()")


# --- selective-backward-twice -------------------------------------------------------------------


def test_second_backward_over_a_selective_region_is_reported():
    (finding,) = run_rule(
        selective_backward_twice,
        entered(4, at="t.py:9"),
        op("mm", (2,), inputs=(1,), nr=1, at="t.py:2", region=4),  # event 2
        fact(e.PolicyDecided, op="aten.mm.default", cached=True, region_id=4, op_seq=2),
        exited(4),
        backward(1, at="t.py:10"),
        recompute(1, 4),
        recomputed(1),
        backward(2, at="t.py:11"),
        raised("RuntimeError", "Trying to backward an extra time.", at="t.py:11"),
    )
    assert finding.slug == "selective-backward-twice"
    assert lines(finding) == ("t.py:11", "t.py:2")


# --- operation-refused --------------------------------------------------------------------------

CONVERTED = (
    tensor(3, dtype="float64"),
    op("_to_copy", (3,), inputs=(2,), at="t.py:2"),
    op("relu", (4,), inputs=(3,), at="t.py:3"),
    tensor(4, dtype="float64"),
    op("addmm", inputs=(1, 4, 1), failed=True, at="t.py:5"),
)


def test_exception_names_the_line_that_converted_an_operand():
    error = raised("RuntimeError", "must have the same dtype", at="t.py:5")
    [finding] = run_rule(operation_refused, CONVERTED, error)
    assert (finding.slug, *lines(finding)) == ("operation-refused", "t.py:2", "t.py:5")
    assert finding.confidence == "hint"


def test_exception_of_a_backward_is_at_the_line_that_raised():
    failed = [backward(at="t.py:4"), backward_ended(failed=True)]
    [finding] = run_rule(operation_refused, failed, raised("RuntimeError", "no", at="t.py:4"))
    assert lines(finding) == ("t.py:4", "t.py:4")


def test_exception_of_the_user_has_no_finding():
    assert run_rule(operation_refused, raised("ValueError", "bad input", at="t.py:4")) == []


def test_exception_that_another_rule_explains_has_no_second_finding():
    error = raised("RuntimeError", SECOND_TIME, at="t.py:4")
    log = make_log(backward(at="t.py:4"), backward_ended(failed=True), error)
    slugs = [finding.slug for finding in autogradviz.Trace(log).diagnose()]
    assert slugs == ["graph-freed"]
