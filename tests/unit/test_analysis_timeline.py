"""The timeline, the error, the notices and the sources."""

from __future__ import annotations

from make_log import (
    backward,
    backward_ended,
    began,
    entered,
    entered_module,
    exited,
    exited_module,
    make_log,
    module,
    node,
    op,
    raised,
    ran,
    recompute,
    recomputed,
    recorder_failed,
    recorder_limited,
    source,
    started,
)

from autogradviz.analysis import Analysis, Notice, RaisedError, SourceLocation


def bars(kind, *facts):
    spans = Analysis(make_log(*facts)).timeline.spans
    return [(s.label, s.start_ns, s.end_ns, s.depth, s.ref) for s in spans if s.kind == kind]


def test_ops_between_backwards_are_a_forward():
    step = [op("exp", duration_ns=100), op("sin", duration_ns=300), backward(), backward_ended()]
    assert bars("forward", step, step) == [
        ("forward", 1000, 2300, 0, None),
        ("forward", 5000, 6300, 0, None),
    ]


def test_forward_begins_with_the_first_module_call_or_op_that_autograd_records():
    call = [module(7, "", "Net"), op("normal_"), entered_module(1, 7), op("exp"), exited_module(1)]
    assert bars("forward", *call) == [("forward", 3000, 5000, 0, None)]
    recorded = op("exp", node=1, nr=0), node(1, "ExpBackward0", nr=0)
    assert bars("forward", op("normal_"), *recorded) == [("forward", 2000, 2500, 0, None)]


def test_nested_backward_has_a_greater_depth():
    assert bars(
        "backward", backward(1), backward(2, parent=1), backward_ended(2), backward_ended(1)
    ) == [("backward", 1000, 4000, 0, 1), ("backward", 2000, 3000, 1, 2)]


def test_module_calls_are_nested_and_named():
    assert bars(
        "module",
        module(7, "", "Net"),
        module(8, "fc"),
        entered_module(1, 7),
        entered_module(2, 8, parent=1),
        exited_module(2),
        entered_module(3, 8, parent=1),
        exited_module(3),
        exited_module(1),
    ) == [("Net", 3000, 8000, 0, 7), ("fc", 4000, 5000, 1, 8), ("fc", 6000, 7000, 1, 8)]


def test_recomputations_and_nodes_have_bars():
    facts = [
        entered(4, function="block"),
        exited(4),
        node(9, "ExpBackward0", nr=0),
        backward(),
        recompute(1, 4),
        recomputed(1),
        ran(9),
        backward_ended(),
    ]
    assert bars("recompute", facts) == [("block", 5000, 6000, 0, 4)]
    assert bars("node", facts) == [("ExpBackward0", 7000, 8000, 0, 9)]


def test_unfinished_bar_ends_with_its_parent():
    facts = [backward(), started(1), backward_ended(failed=True), entered_module(1, 1), op("exp")]
    assert bars("node", facts) == [("", 2000, 3000, 0, 1)]
    assert bars("module", facts) == [("", 4000, 5000, 0, 1)]


def test_last_error_is_the_error_of_the_recording():
    model = Analysis(
        make_log(raised("ValueError"), raised("RuntimeError", "no", node=3, at="t.py:5"))
    )
    assert model.error == RaisedError(
        seq=2,
        type_name="RuntimeError",
        message="no",
        node_id=3,
        backward_id=None,
        location=SourceLocation(filename="t.py", lineno=5, function="forward", text=""),
    )


def test_notices_list_recorder_failures_and_missing_parts_of_the_file():
    log = make_log(recorder_limited("graph", "too deep"), recorder_failed("ops", "oops"))
    log.problem = "the recording has no end"
    assert Analysis(log).notices == (
        Notice(hook_point="ops", message="oops", failure=True),
        Notice(hook_point="graph", message="too deep", failure=False),
        Notice(hook_point="file", message="the recording has no end", failure=True),
    )


def test_stack_is_innermost_first_and_its_user_line_is_the_location():
    model = Analysis(make_log(op("exp", at=("torch/a.py:1", "m.py:2", "t.py:3")), op("sin")))
    assert [str(each) for each in model.stack(0)] == ["torch/a.py:1", "m.py:2", "t.py:3"]
    assert [str(each.location) for each in model.ops] == ["m.py:2", "None"]
    assert (model.stack(99), model.location(99), model.location(None)) == ((), None, None)


def test_stack_of_library_frames_is_located_at_the_innermost_frame():
    model = Analysis(make_log(op("exp", at=("torch/a.py:1", "torch/b.py:2"))))
    assert str(model.ops[0].location) == "torch/a.py:1"


def test_ops_of_optimizers_and_clipping_are_recognized_by_their_exact_package():
    optim = ("torch/optim/sgd.py:1", "t.py:3")
    clip = ("torch/nn/utils/clip_grad.py:1", "t.py:4")
    other = ("m.py:2", "lib/gpytorch/optim/fit.py:1", "t.py:5")
    averaged = ("m.py:2", "torch/nn/modules/module.py:9", "torch/optim/swa_utils.py:1", "t.py:6")
    model = Analysis(make_log(*(op("exp", at=at) for at in (optim, clip, other, averaged))))
    assert [model.in_optimizer(each.stack_id) for each in model.ops] == [True, True, False, False]


def test_source_lines_and_start_event_are_available():
    model = Analysis(make_log(began(model_name="Net"), source("m.py", 3, "    x = 1")))
    assert model.source_lines == {("m.py", 3): "    x = 1"}
    assert model.started is not None
    assert model.started.model_name == "Net"
