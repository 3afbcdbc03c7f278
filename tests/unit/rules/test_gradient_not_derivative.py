"""The finding of recordings with ``verify``, on hand-written logs."""

import pytest
from make_log import backward, backward_ended, fact, node, op, parameter, ran, saved, started
from run_rule import lines, run_rule

from autogradviz.diagnose.rules.custom_functions import gradient_not_derivative
from autogradviz.events import GradientFactFailed

WRITE = op("mul_", (1,), inputs=(1,), writes=(1,), at="t.py:4")


def findings(*between, node_id=7, **failed):
    fields = {
        "backward_id": 1, "node_id": node_id, "fact": "node", "changed_by": "", "position": 0,
        "relative_error": 0.5, "tensor_id": None, "written_slot": "other",
    }  # fmt: skip
    return run_rule(
        gradient_not_derivative,
        parameter(1, "w"),
        op("mul", (2,), inputs=(3, 1), nr=1, at="t.py:2"),
        saved(1, 1, nr=1, node=7, slot="other"),
        between,
        node(7, "MulBackward0", nr=1, to=(8, 9)),
        node(8, "AccumulateGrad", leaf=3),
        node(9, "AccumulateGrad", leaf=1),
        backward(roots=(7,), at="t.py:5"),
        started(7),
        ran(8),
        fact(GradientFactFailed, **(fields | failed)),
        backward_ended(),
    )


def test_line_that_wrote_a_saved_tensor_is_the_culprit():
    (finding,) = findings(WRITE)
    assert finding.slug == "gradient-not-derivative"
    assert (lines(finding), finding.confidence) == (("t.py:4", "t.py:2"), "certain")
    assert "off by 50.0% from its derivative" in finding.title


def test_without_a_write_the_line_of_the_op_is_named():
    (finding,) = findings(written_slot="")
    assert (lines(finding), finding.confidence) == (("t.py:2", "t.py:2"), "likely")


@pytest.mark.parametrize("kind", ["edge", "leaf"])
def test_edges_and_leaves_are_reported(kind):
    (finding,) = findings(fact=kind, relative_error=None, written_slot="")
    assert "more than 1,000 %" in finding.title


def test_gradient_changed_on_purpose_is_not_reported():
    assert findings(changed_by="hook") == []
