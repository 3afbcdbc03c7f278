"""Rules about the order of backward, clearing, clipping, scaling and steps."""

from __future__ import annotations

import pytest
from make_log import (
    accumulated,
    backward,
    backward_ended,
    fact,
    finished,
    leaf,
    node,
    op,
    raised,
    started,
    tensor,
)
from run_rule import lines, run_rule

from autogradviz.diagnose.rules.backward_refused import gradient_of_non_leaf
from autogradviz.diagnose.rules.optimizer_steps_clipping_and_clearing import (
    clip_at_the_wrong_time,
    gradients_not_cleared,
    scaler_without_scale,
)
from autogradviz.events import OptimizerStepped

GRADIENT, NEW = 50, 51  # of leaf 1
SGD = ("torch/optim/sgd.py:9", "t.py:6")
CLIP = "torch/nn/utils/clip_grad.py:9"
UNSCALE = "_amp_foreach_non_finite_check_and_unscale_"


def tensors():
    return [tensor(number, (2, 4)) for number in (1, GRADIENT, NEW, 60)]


def gradient(number, *, new=GRADIENT, added=True, root=8):
    """Return a backward that gives leaf 1 a gradient: the first, or one that is added to it."""
    return [
        backward(number, roots=(root,), at="t.py:5"),
        started(8, backward=number, inputs=(new,)),
        op("add_", (GRADIENT,), inputs=(GRADIENT, new), writes=(GRADIENT,), phase="backward",
           node=8) if added else (),
        finished(8, backward=number),
        accumulated(8, 1, backward=number),
        backward_ended(number),
    ]  # fmt: skip


def step():
    return op("add_", (1,), inputs=(1, GRADIENT), writes=(1,), at=SGD)


def zeros():
    return op("zero_", (GRADIENT,), inputs=(GRADIENT,), writes=(GRADIENT,), at="t.py:7")


def clip(at="t.py:7"):
    return op(
        "mul_",
        (GRADIENT,),
        inputs=(GRADIENT, 60),
        writes=(GRADIENT,),
        at=(CLIP, at),
        phase="forward",
    )


def unscale():
    return op(
        UNSCALE, (), inputs=(GRADIENT, 60), writes=(GRADIENT,),
        at=("torch/amp/grad_scaler.py:9", "t.py:6"),
    )  # fmt: skip


# --- gradients-not-cleared ----------------------------------------------------------------------


def not_cleared(*facts):
    return run_rule(gradients_not_cleared, tensors(), leaf(8, 1), facts)


def test_gradients_that_every_step_uses_again_are_reported():
    (finding,) = not_cleared(
        gradient(1, added=False), step(), gradient(2, new=NEW), step(), gradient(3, new=NEW), step()
    )
    assert finding.slug == "gradients-not-cleared"
    assert finding.confidence == "hint"
    assert lines(finding) == ("t.py:6", "t.py:5")
    assert "2 of 2 steps" in finding.explanation


@pytest.mark.parametrize(
    "program",
    {
        "zeros between": [
            gradient(1, added=False), step(), zeros(), gradient(2, new=NEW), step(), zeros(),
            gradient(3, new=NEW), step(),
        ],
        "removed between": [
            gradient(1, added=False), step(), gradient(2, added=False), step(),
            gradient(3, added=False), step(),
        ],
        "once": [gradient(1, added=False), step(), gradient(2, new=NEW), step()],
        "accumulated before one step": [
            gradient(1, added=False), gradient(2, new=NEW), gradient(3, new=NEW), step(),
        ],
        "not always": [
            gradient(1, added=False), step(), gradient(2, new=NEW), step(),
            gradient(3, added=False), step(),
        ],
    }.values(),
)  # fmt: skip
def test_gradients_that_are_cleared_give_no_finding(program):
    assert not_cleared(program) == []


# --- clip-after-step, clip-before-unscale, clip-while-accumulating ------------------------------


def wrongly_clipped(*facts):
    return run_rule(clip_at_the_wrong_time, tensors(), leaf(8, 1), facts)


def test_clipping_after_the_step_is_reported():
    (finding,) = wrongly_clipped(gradient(1, added=False), step(), clip())
    assert (finding.slug, finding.confidence) == ("clip-after-step", "hint")
    assert lines(finding) == ("t.py:7", "t.py:6")


def stepped():
    return [step(), fact(OptimizerStepped, optimizer_name="SGD", tensor_ids=(1,), gradient_count=1)]


def test_clipping_between_the_backwards_of_a_step_is_reported():
    (finding,) = wrongly_clipped(
        gradient(1, added=False), clip(), gradient(2, new=NEW), stepped(), zeros(),
        gradient(3, new=NEW), clip(), gradient(4, new=NEW), stepped(),
    )  # fmt: skip
    assert (finding.slug, finding.confidence) == ("clip-while-accumulating", "hint")
    assert lines(finding) == ("t.py:7", "t.py:5")
    assert wrongly_clipped(gradient(1, added=False), clip(), stepped()) == []


def test_clipping_of_scaled_gradients_is_reported():
    (finding,) = wrongly_clipped(gradient(1, added=False), clip(), unscale(), step())
    assert (finding.slug, finding.confidence) == ("clip-before-unscale", "hint")
    assert lines(finding) == ("t.py:7", "t.py:6")


@pytest.mark.parametrize(
    "program",
    {
        "before the step": [clip(), step()],
        "unscaled before": [unscale(), clip(), step()],
        "after the step, for the next one": [step(), clip(), step()],
        "gradients that no step used": [clip()],
    }.values(),
)
def test_clipping_at_the_right_time_gives_no_finding(program):
    assert wrongly_clipped(gradient(1, added=False), program) == []


# --- scaler-without-scale -----------------------------------------------------------------------


def unscaled_loss(name, *facts):
    return run_rule(
        scaler_without_scale,
        tensors(),
        op(name, (60,), inputs=(1,), nr=0, node=9, at="t.py:4"),
        node(9, f"{name.title()}Backward0", nr=0, to=(8,)),
        leaf(8, 1),
        gradient(1, added=False, root=9),
        facts,
    )


def test_loss_that_no_scale_was_multiplied_with_is_reported():
    (finding,) = unscaled_loss("mean", unscale())
    assert (finding.slug, finding.confidence) == ("scaler-without-scale", "hint")
    assert lines(finding) == ("t.py:5", "t.py:6")


def test_scaled_loss_gives_no_finding():
    assert unscaled_loss("mul", unscale()) == []


def test_backward_without_a_scaler_gives_no_finding():
    assert unscaled_loss("mean", step()) == []


# --- gradient-of-non-leaf -----------------------------------------------------------------------


def write(path, *rows):
    path.write_text("\n    ".join(["def forward():", *rows]) + "\n", encoding="utf-8")
    return str(path)


def failing(path, number, *facts):
    return run_rule(
        gradient_of_non_leaf,
        [tensor(number, (3,)) for number in (1, 2, 3)],
        facts,
        raised("TypeError", "unsupported operand type(s) for *: 'float' and 'NoneType'",
              at=f"{path}:{number}"),
    )  # fmt: skip


def test_tensor_that_its_own_update_replaced_is_reported(tmp_path):
    path = write(tmp_path / "t.py", "w = make()", "w = w - 0.1 * w.grad")
    (finding,) = failing(path, 3, op("sub", (2,), inputs=(1, 3), nr=0, at=f"{path}:3"))
    assert (finding.slug, finding.confidence) == ("gradient-of-non-leaf", "likely")
    assert finding.culprit.lineno == finding.victim.lineno == 3


def test_leaf_that_is_lost_on_its_line_is_reported(tmp_path):
    path = write(tmp_path / "t.py", "w = randn(3, requires_grad=True) * 0.1", "w -= w.grad")
    made = op("randn", (1,), at=f"{path}:2"), op("mul", (2,), inputs=(1,), nr=0, at=f"{path}:2")
    (finding,) = failing(path, 3, *made)
    assert finding.culprit.lineno == 2
    assert finding.victim.lineno == 3


def test_other_errors_about_none_give_no_finding(tmp_path):
    path = write(tmp_path / "t.py", "w = randn(3, requires_grad=True) * 0.1", "w - config.rate")
    made = op("randn", (1,), at=f"{path}:2"), op("mul", (2,), inputs=(1,), nr=0, at=f"{path}:2")
    assert failing(path, 3, *made) == []


def test_gradient_that_is_none_for_another_reason_gives_no_finding(tmp_path):
    path = write(tmp_path / "t.py", "w = randn(3, requires_grad=True)", "w -= 0.1 * w.grad")
    assert failing(path, 3, op("randn", (1,), at=f"{path}:2")) == []
