"""The rule about a loss with more than one element."""

from __future__ import annotations

from make_log import op, raised, tensor
from run_rule import lines, run_rule

from autogradviz.diagnose.rules.backward_refused import loss_not_scalar

MESSAGE = "grad can be implicitly created only for scalar outputs"


def test_the_line_that_made_the_loss_is_the_culprit():
    (finding,) = run_rule(
        loss_not_scalar,
        op("linear", (1,), at="t.py:3"),
        op("mse_loss", (2,), at="t.py:4"),
        raised("RuntimeError", MESSAGE, at="t.py:5"),
    )
    assert (finding.slug, lines(finding)) == ("loss-not-scalar", ("t.py:4", "t.py:5"))


def test_a_recording_without_ops_has_no_finding():
    assert not run_rule(loss_not_scalar, raised("RuntimeError", MESSAGE, at="t.py:4"))


def test_the_shape_is_that_of_the_result_with_several_elements():
    (finding,) = run_rule(
        loss_not_scalar,
        tensor(8, ()),
        tensor(9, (4, 3)),
        op("custom_loss", (8, 9), at="t.py:4"),
        raised("RuntimeError", MESSAGE, at="t.py:5"),
    )
    assert finding.title.endswith("(4, 3)")


def test_the_culprit_is_the_only_term_of_a_sum_that_has_several_elements():
    (finding,) = run_rule(
        loss_not_scalar,
        tensor(3, ()),
        tensor(5, ()),
        tensor(4, (4, 3)),
        tensor(6, (4, 3)),
        op("mean", (3,), inputs=(1,), nr=1, at="t.py:2"),
        op("mul", (5,), inputs=(3,), nr=2, at="t.py:4"),
        op("square", (4,), inputs=(1,), nr=3, at="t.py:3"),
        op("add", (6,), inputs=(5, 4), nr=4, at="t.py:4"),
        raised("RuntimeError", MESSAGE, at="t.py:5"),
    )
    assert lines(finding) == ("t.py:3", "t.py:5")
