"""Rules about gradients: missing, not finite, exploding, vanishing, zero, counted twice, frozen."""

from __future__ import annotations

import pytest
from make_log import (
    accumulated,
    backward,
    backward_ended,
    fact,
    finished,
    leaf,
    module,
    node,
    op,
    parameter,
    raised,
    ran,
    recorder_limited,
    started,
    tensor,
)
from run_rule import lines, run_rule

from autogradviz import events as e
from autogradviz.diagnose.rules import backward_refused as refused
from autogradviz.diagnose.rules.gradient_values import (
    gradient_double_counted,
    gradient_magnitude,
    nan_in_anomaly_mode,
    not_finite,
)
from autogradviz.diagnose.rules.missing_gradients import gradient_missing, loss_term_constant
from autogradviz.diagnose.rules.parameters_frozen_or_replaced import frozen_zeros, leaf_frozen
from autogradviz.diagnose.rules.weights_untied import weights_untied


def norm(tensor_id, value, *, place="gradient"):
    return fact(e.NormRead, backward_id=1, tensor_id=tensor_id, place=place, norm=value)


# --- loss-term-constant -------------------------------------------------------------------------


def penalty(*between, create_graph=False):
    """Add the sum of a gradient to a loss, and compute its gradients."""
    return run_rule(
        loss_term_constant,
        [tensor(number, (), nbytes=4) for number in (4, 5, 6)],
        node(7, "SumBackward0", nr=1),
        node(8, "AddBackward0", nr=2, to=(7, -1)),
        op("sum", (4,), inputs=(1,), nr=1, node=7, at="t.py:2"),
        backward(roots=(7,), accumulate=False, create_graph=create_graph, at="t.py:3"),
        op("expand", (2,), inputs=(4,), phase="backward"),
        backward_ended(),
        between,
        op("sum", (5,), inputs=(2,), at="t.py:4"),
        op("add", (6,), inputs=(4, 5), nr=2, node=8, at="t.py:5"),
        backward(2, roots=(8,), at="t.py:6"),
        ran(8, backward=2),
        backward_ended(2),
    )


def test_loss_term_without_a_graph_is_reported():
    (finding,) = penalty()
    assert finding.slug == "loss-term-constant"
    assert lines(finding) == ("t.py:3", "t.py:4")
    assert finding.confidence == "hint"


def test_loss_term_with_a_graph_or_detached_on_purpose_gives_no_finding():
    assert penalty(create_graph=True) == []
    assert penalty(op("detach", (2,), inputs=(2,), at="t.py:4")) == []


# --- gradient-missing ---------------------------------------------------------------------------


def missing(*forward, **root):
    return run_rule(
        gradient_missing,
        parameter(1, "encoder.weight"),
        parameter(2, "head.weight"),
        forward,
        node(7, "MmBackward0", nr=9, to=(-1, 8)),
        leaf(8, 2),
        backward(roots=(7,), at="t.py:8", **root),
        ran(7),
        accumulated(8, 2),
    )


def test_detach_on_the_gradient_path_is_reported():
    (finding,) = missing(
        op("mm", (3,), inputs=(1,), nr=0, at="t.py:2"),
        op("detach", (3,), inputs=(3,), at="t.py:3"),
        op("mm", (4,), inputs=(3, 2), nr=9, at="t.py:4"),
    )
    assert finding.slug == "gradient-missing"
    assert lines(finding) == ("t.py:3", "t.py:2")
    assert finding.confidence == "hint"
    assert finding.title == "encoder.weight got no gradient: the gradient path ends at detach"


def test_result_not_used_by_the_loss_is_reported():
    (finding,) = missing(op("mm", (3,), inputs=(1,), nr=0, at="t.py:2"))
    assert "the loss does not use their results" in finding.title
    assert lines(finding) == ("t.py:2", "t.py:2")


def copied(tmp_path, text):
    """Return the findings of a program that makes tensor 4 from numbers in its line 3."""
    path = tmp_path / "t.py"
    path.write_text(f"def forward():\n    h = x @ w\n    {text}\n    z @ v\n")
    return missing(
        op("mm", (3,), inputs=(1,), nr=0, at=f"{path}:2"),
        op("lift_fresh", (4,), inputs=(4,), at=f"{path}:3"),
        op("mm", (5,), inputs=(4, 2), nr=9, at=f"{path}:7"),
    )


def test_tensor_made_of_the_numbers_of_another_one_is_reported(tmp_path):
    (finding,) = copied(tmp_path, "z = torch.tensor(h.tolist())")
    assert finding.title == "encoder.weight got no gradient: the gradient path ends at a new tensor"
    assert finding.culprit.lineno == 3


def test_tensor_made_of_other_numbers_is_not_reported(tmp_path):
    (finding,) = copied(tmp_path, "z = torch.tensor([1.0, 2.0])")
    assert "the loss does not use their results" in finding.title


def test_backward_with_inputs_gives_no_finding():
    assert missing(input_tensor_ids=(2,)) == []


def test_partial_recording_gives_no_finding():
    assert missing(recorder_limited("within", "")) == []


# --- not-finite ---------------------------------------------------------------------------------

NAN = fact(e.NotFiniteSeen, content_hash=66, nan_count=3)


def test_first_op_with_finite_inputs_and_a_nan_output_is_reported():
    (finding,) = run_rule(
        not_finite,
        NAN,
        op("log", (2,), inputs=(1,), nr=0, at="t.py:2", input_hashes=(5,), output_hashes=(66,)),
        op("sum", (9,), inputs=(2,), nr=1, at="t.py:3", input_hashes=(66,), output_hashes=(66,)),
        backward(at="t.py:4"),
        norm(9, None, place="root"),
    )
    assert finding.slug == "not-finite"
    assert finding.title == "log gave the first NaN"
    assert lines(finding) == ("t.py:2", "t.py:4")
    assert finding.confidence == "certain"
    assert "Its output has 3 NaN entries" in finding.explanation


def test_gradient_alone_is_reported_without_fingerprints():
    (finding,) = run_rule(not_finite, parameter(1, "w"), backward(at="t.py:4"), norm(1, None))
    assert finding.title == "The gradient of w is NaN or infinite"
    assert (finding.culprit, finding.confidence) == (None, "hint")


def part_norm(tensor_id, value):
    placements = ("Shard(dim=0)",)
    return fact(
        e.LocalGradientNormRead, backward_id=1, tensor_id=tensor_id, placements=placements,
        norm=value,
    )  # fmt: skip


def test_part_of_a_distributed_gradient_is_reported():
    (finding,) = run_rule(
        not_finite, parameter(1, "w"), parameter(2, "b"), backward(at="t.py:4"),
        part_norm(1, None), part_norm(1, None), part_norm(2, 0.5),
    )  # fmt: skip
    assert finding.title == "The gradient of w is NaN or infinite"
    assert (finding.culprit, finding.confidence) == (None, "hint")


def test_finite_norm_gives_no_finding():
    assert run_rule(not_finite, parameter(1, "w"), backward(at="t.py:4"), norm(1, 2.0)) == []


def test_node_named_by_anomaly_detection_leads_to_its_forward_line():
    (finding,) = run_rule(
        nan_in_anomaly_mode,
        op("sqrt", (2,), inputs=(1,), nr=0, at="t.py:2"),
        node(7, "SqrtBackward0", nr=0),
        backward(roots=(7,), at="t.py:4"),
        started(7),
        raised(
            "RuntimeError", "Function 'SqrtBackward0' returned nan values in its 0th output.",
            at="t.py:4",
        ),
    )  # fmt: skip
    assert lines(finding) == ("t.py:2", "t.py:4")
    assert finding.nodes == (7,)
    assert "torch.sqrt(x + 1e-8)" in finding.fix


# --- gradient-exploding, gradient-vanishing -------------------------------------------------------


def layers(*sizes):
    """Weights of 2x2 entries, used in order, and the root mean squares of their gradients."""
    return [
        [
            [tensor(i, (2, 2)), parameter(i, f"layers.{i}.weight")],
            op("mm", (20 + i,), inputs=(i,), nr=i, at=f"t.py:{i}"),
        ]
        for i in range(1, len(sizes) + 1)
    ], [norm(i, 2 * size) for i, size in enumerate(sizes, start=1)]


def test_gradients_that_grow_towards_the_first_layers_are_exploding():
    (finding,) = run_rule(gradient_magnitude, *layers(1e5, 1e2, 1.0))
    assert finding.slug == "gradient-exploding"
    assert lines(finding) == ("t.py:1", "t.py:3")
    assert "1.0e+05 per entry at layers.1.weight" in finding.title


def test_gradients_that_shrink_towards_the_first_layers_are_vanishing():
    (finding,) = run_rule(gradient_magnitude, *layers(1e-9, 1e-4, 1.0))
    assert finding.slug == "gradient-vanishing"
    assert lines(finding) == ("t.py:1", "t.py:3")


@pytest.mark.parametrize("sizes", [(1.0, 1.0, 1.0), (1e-9, 1.0), (1.0, 1e-4, 1e-9)])
def test_other_gradients_give_no_finding(sizes):
    assert run_rule(gradient_magnitude, *layers(*sizes)) == []


# --- gradient-counted-twice ---------------------------------------------------------------------


def counted(*, parent=1, accumulate=True):
    return run_rule(
        gradient_double_counted,
        op("mul", (2,), inputs=(1,), nr=0, at="t.py:2"),
        node(7, "ProductBackward", nr=0, to=(8,)),
        leaf(8, 1),
        backward(1, roots=(7,), at="t.py:9"),
        started(7),
        backward(2, parent=parent, accumulate=accumulate, at="t.py:5"),
        accumulated(8, 1, backward=2),
        backward_ended(2),
        finished(7),
        accumulated(8, 1, backward=1),
        backward_ended(1),
    )


def test_leaf_reached_by_a_node_and_its_nested_backward_is_reported():
    (finding,) = counted()
    assert finding.slug == "gradient-counted-twice"
    assert lines(finding) == ("t.py:5", "t.py:2")
    assert (finding.confidence, finding.nodes) == ("likely", (7,))


def test_separate_or_non_accumulating_backward_gives_no_finding():
    assert counted(parent=None) == []
    assert counted(accumulate=False) == []


# --- leaf-frozen-early, leaf-never-thawed -------------------------------------------------------


def requires_grad(tensor_id, value, **fields):
    return fact(e.RequiresGradChanged, tensor_id=tensor_id, requires_grad=value, **fields)


def use(nr=0, *inputs, at="t.py:2"):
    return op("mm", (30 + nr,), inputs=inputs, nr=nr, at=at)


def test_leaf_frozen_before_backward_reaches_it_is_reported():
    (finding,) = run_rule(
        leaf_frozen,
        parameter(1, "w"),
        use(0, 1),
        node(7, "MmBackward0", nr=0, to=(8,)),
        leaf(8, 1),
        requires_grad(1, False, at="t.py:4"),
        backward(roots=(7,), at="t.py:5"),
        ran(7),
        ran(8),
    )
    assert finding.slug == "leaf-frozen-early"
    assert lines(finding) == ("t.py:4", "t.py:2")
    assert finding.title == "w was frozen before backward reached it: its gradient is lost"


def unfrozen(*changes):
    return run_rule(
        leaf_frozen,
        [parameter(i, f"w{i}") for i in (1, 2)],
        [requires_grad(i, False, at="t.py:1") for i in (1, 2)],
        backward(1, at="t.py:5"),
        backward_ended(1),
        changes,
        use(1, 1, 2, at="t.py:7"),
        backward(2, at="t.py:5"),
    )


def test_parameters_that_stay_frozen_while_others_are_unfrozen_are_reported():
    (finding,) = unfrozen(requires_grad(1, True, at="t.py:6"))
    assert finding.slug == "leaf-never-thawed"
    assert lines(finding) == ("t.py:1", "t.py:7")
    assert finding.title == "1 of 2 frozen parameters were never unfrozen"
    assert "have not learned since: w2." in finding.explanation


def test_all_or_no_parameters_unfrozen_gives_no_finding():
    assert unfrozen() == []
    assert unfrozen([requires_grad(i, True, at="t.py:6") for i in (1, 2)]) == []


def product_with_frozen(norm_of_frozen, *, name="down"):
    return run_rule(
        frozen_zeros,
        [tensor(number, (8, 8)) for number in (1, 2, 3, 4)],
        [parameter(1, "up"), parameter(2, name)],
        requires_grad(2, False, at="t.py:1"),
        op("mm", (3,), inputs=(9, 2), at="t.py:2"),
        op("mm", (4,), inputs=(3, 1), nr=0, node=7, at="t.py:3"),
        node(7, "MmBackward0", nr=0, to=(8,)),
        leaf(8, 1),
        backward(roots=(7,), at="t.py:5"),
        ran(7),
        ran(8),
        accumulated(8, 1),
        backward_ended(),
        fact(e.ParameterNormRead, tensor_id=2, norm=norm_of_frozen),
    )


def test_a_frozen_matrix_of_zeros_that_the_loss_is_computed_with_is_reported():
    (finding,) = product_with_frozen(0.0)
    assert (finding.slug, finding.confidence) == ("leaf-never-thawed", "hint")
    assert lines(finding) == ("t.py:1", "t.py:2")


def test_a_frozen_matrix_with_values_or_of_a_copy_gives_no_finding():
    assert product_with_frozen(1.0) == []
    assert product_with_frozen(0.0, name="copy.up") == []


# --- weights-untied -----------------------------------------------------------------------------

MODEL = """\
class LM(Module):
    def __init__(self):
        self.head.weight = self.emb.weight
        self.head = Linear(8, 8)


loss(LM()).backward()
"""


def trained_as_two(path, text, *, storages=(1, 2)):
    path.write_text(text, encoding="utf-8")
    return run_rule(
        weights_untied,
        [tensor(i, (8, 8), storage=storage) for i, storage in zip((1, 2), storages, strict=True)],
        [module(0, "", "LM"), module(1, "emb", parent=0), module(2, "head", parent=0)],
        [parameter(1, "emb.weight", module=1), parameter(2, "head.weight", module=2)],
        op("mm", (3,), inputs=(1, 2), nr=0, at=f"{path}:7"),
        node(7, "MmBackward0", nr=0, to=(8, 9)),
        [leaf(8, 1), leaf(9, 2)],
        backward(roots=(7,), at=f"{path}:7"),
        [ran(number) for number in (7, 8, 9)],
        [accumulated(8, 1), accumulated(9, 2)],
        backward_ended(),
    )


def test_weights_that_a_statement_tied_and_that_are_two_are_reported(tmp_path):
    path = tmp_path / "script.py"
    (finding,) = trained_as_two(path, MODEL)
    assert (finding.slug, finding.confidence) == ("weights-untied", "hint")
    assert str(finding.victim) == f"{path}:3"


def test_weights_that_are_one_or_are_tied_by_no_statement_give_no_finding(tmp_path):
    assert trained_as_two(tmp_path / "tied.py", MODEL, storages=(1, 1)) == []
    made = MODEL.replace("self.emb.weight", "Parameter(zeros(8, 8))")
    assert trained_as_two(tmp_path / "made.py", made) == []


# --- gradient-refused ---------------------------------------------------------------------------

FUNCTION = """\
class Scale(Function):
    def forward(ctx, x, factor):
        return x * factor

    def backward(ctx, gradient):
        return gradient * 2


def clip(gradient):
    return gradient.sum()


class Square(Function):
    @once_differentiable
    def backward(ctx, gradient):
        return gradient


y = Scale.apply(x, 2)
y.backward()
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(FUNCTION, encoding="utf-8")
    return path


def test_return_of_a_custom_backward_is_reported(script):
    (finding,) = run_rule(
        refused.function_gradient_refused,
        op("mul", (2,), inputs=(1,), nr=0, at=f"{script}:19"),
        node(7, "ScaleBackward", nr=0),
        raised(
            "RuntimeError",
            "function ScaleBackward returned an incorrect number of gradients (expected 2, got 1)",
            node=7,
            at=f"{script}:20",
        ),
    )
    assert finding.slug == "gradient-refused"
    assert lines(finding) == (f"{script}:6", f"{script}:19")
    assert (finding.confidence, finding.nodes) == ("certain", (7,))


def test_return_of_the_last_hook_is_reported(script):
    hook = {"hook_id": 1, "hook_kind": "tensor"}
    (finding,) = run_rule(
        refused.hook_gradient_refused,
        fact(e.HookRegistered, hook_name="clip", tensor_id=1, at=f"{script}:19", **hook),
        fact(e.HookRan, failed=True, **hook),
        raised("RuntimeError", "hook 'clip' has changed the size of value", at=f"{script}:20"),
    )
    assert lines(finding) == (f"{script}:10", f"{script}:20")


def test_decorator_of_a_backward_differentiated_twice_is_reported(script):
    (finding,) = run_rule(
        refused.once_differentiable_refused,
        backward(create_graph=True, at=f"{script}:19"),
        raised(
            "RuntimeError",
            "trying to differentiate twice a function that was marked with @once_differentiable",
            at=f"{script}:20",
        ),
    )
    assert lines(finding) == (f"{script}:14", f"{script}:19")
