"""Findings from hand-written logs."""

from make_log import (
    backward,
    backward_ended,
    bumped,
    entered,
    exited,
    make_log,
    node,
    op,
    parameter,
    raised,
    ran,
    recompute,
    recomputed,
    saved,
    slot,
    source,
    started,
    tensor,
    unpacked,
)

from autogradviz.analysis import Analysis
from autogradviz.diagnose import diagnose

INPLACE = "one of the variables has been modified by an inplace operation: is at version 1; expected version 0 instead"  # noqa: E501 - message of PyTorch


def found(*facts):
    return diagnose(Analysis(make_log(*facts)))


def mutated(*writes, optimizer=False):
    at = ("torch/optim/sgd.py:9", "t.py:3") if optimizer else "t.py:3"
    return found(
        source("t.py", 3, "b.add_(1)"),
        op("exp", (1,), nr=5, at="t.py:2"),
        [bumped(name, version=i, at=at) for i, name in enumerate(writes)],
        node(7, "ExpBackward0", nr=5),
        saved(1, 1, node=7, slot="result", nr=5, version=0),
        backward(roots=(7,)),
        started(7),
        unpacked(1, version=0, seen=len(writes), node=7),
        backward_ended(failed=True),
        raised("RuntimeError", INPLACE, node=7, backward=1),
    )


def test_write_between_save_and_unpack_is_the_culprit():
    (finding,) = mutated("add_")
    assert finding.slug == "saved-tensor-mutated"
    assert (str(finding.culprit), str(finding.victim)) == ("t.py:3", "t.py:2")
    assert finding.confidence == "certain"
    assert finding.title == "ExpBackward0.result was written before backward needed it"
    assert finding.nodes == (7,)
    assert "at version 0" in finding.explanation
    assert "its version is now 1" in finding.explanation


def test_first_of_several_writes_is_named_and_the_others_are_counted():
    (finding,) = mutated("add_", "mul_", "sub_")
    assert "Then add_ at t.py:3" in finding.explanation
    assert "2 more writes followed" in finding.explanation


def test_write_before_the_save_is_not_the_culprit():
    (finding,) = found(
        bumped("mul_", version=0, at="t.py:1"),
        op("exp", (1,), nr=5, at="t.py:2"),
        bumped("add_", version=1, at="t.py:3"),
        node(7, "ExpBackward0", nr=5),
        saved(1, 1, node=7, slot="result", nr=5, version=1),
        backward(roots=(7,)),
        started(7),
        unpacked(1, version=1, seen=2, node=7),
        backward_ended(failed=True),
        raised("RuntimeError", INPLACE, node=7, backward=1),
    )
    assert str(finding.culprit) == "t.py:3"


def test_optimizer_write_has_its_own_fix():
    (finding,) = mutated("addcdiv_", optimizer=True)
    assert str(finding.culprit) == "t.py:3"
    assert "step()" in finding.fix


def test_changed_version_without_an_error_gives_no_finding():
    assert (
        found(
            op("exp", (1,), nr=5, at="t.py:2"),
            bumped("add_", version=0, at="t.py:3"),
            node(7, "ExpBackward0", nr=5),
            saved(1, 1, node=7, slot="result", nr=5, version=0),
            backward(roots=(7,)),
            ran(7),
            unpacked(1, version=0, seen=1, node=7),
            backward_ended(),
        )
        == ()
    )


def test_versions_are_read_from_the_message_if_not_recorded():
    (finding,) = found(raised("RuntimeError", INPLACE))
    assert finding.confidence == "likely"
    assert finding.culprit is None
    assert "version 0 when saved, 1 now" in finding.explanation


def test_other_errors_give_no_finding():
    assert found(raised("ValueError", "x")) == ()
    assert found(raised("torch.utils.checkpoint.CheckpointError", "something new")) == ()


def diverged(message, *, forward=(), again=(), outcome="completed"):
    return found(
        parameter(9, "h.0.weight"),
        entered(1, at="model.py:77"),
        op("linear", (1,), nr=0, region=1, at="a.py:40"),
        saved(1, 1, nr=0, by="checkpoint", region=1, position=0, at="a.py:40"),
        forward,
        exited(1),
        node(3, "LinearBackward0", nr=0),
        slot(1, 3, "mat1"),
        backward(roots=(3,)),
        started(3),
        recompute(1, 1),
        op("linear", (11,), nr=10, region=1, recompute=1, at="a.py:40"),
        saved(11, 11, nr=10, by="recompute", region=1, recompute=1, position=0),
        again,
        recomputed(1, outcome),
        unpacked(1, node=3, failed=True, seen=None),
        backward_ended(failed=True),
        raised("torch.utils.checkpoint.CheckpointError", message, node=3),
    )


def test_ops_that_ran_in_place_of_each_other_are_the_first_difference():
    (finding,) = diverged(
        "A different number of tensors was saved",
        forward=[
            op("sigmoid", (2,), nr=1, region=1, at="a.py:44"),
            op("mul", (3,), nr=2, region=1, at="a.py:44"),
            saved(2, 2, nr=2, by="checkpoint", region=1, position=1, at="a.py:44"),
        ],
        again=[op("gelu", (12,), nr=11, region=1, recompute=1, at="a.py:46")],
    )
    assert "forward:       sigmoid" in finding.explanation
    assert "recomputation: gelu" in finding.explanation
    assert "a.py:46" in finding.explanation


def test_op_that_only_the_recomputation_ran_is_the_first_difference():
    (finding,) = diverged(
        "Recomputed values for the following tensors have different metadata",
        forward=[
            tensor(2, (2, 5)),
            op("bmm", (2,), nr=1, region=1, at="a.py:49"),
            saved(2, 2, nr=1, by="checkpoint", region=1, position=1, at="a.py:49"),
            node(4, "BmmBackward0", nr=1),
            slot(2, 4, "mat2"),
        ],
        again=[
            tensor(12, (2, 10)),
            op("cat", (12,), nr=11, region=1, recompute=1, at="a.py:46"),
            op("bmm", (12,), nr=12, region=1, recompute=1, at="a.py:49"),
            saved(12, 12, nr=12, by="recompute", region=1, recompute=1, position=1, at="a.py:49"),
        ],
    )
    assert finding.slug == "checkpoint-different-metadata"
    assert (str(finding.culprit), str(finding.victim)) == ("a.py:46", "a.py:49")
    assert finding.region_id == 1
    assert "They differ first at op 2" in finding.explanation
    assert "forward:       nothing" in finding.explanation
    assert "recomputation: cat → float32 2×10, a.py:46" in finding.explanation
    assert "BmmBackward0.mat2 (position 1, a.py:49): float32 2×5 → float32 2×10" in (
        finding.explanation
    )


def test_op_that_only_the_forward_ran_is_the_first_difference():
    (finding,) = diverged(
        "A different number of tensors was saved during the original forward",
        forward=[
            op("cos", (2,), nr=1, region=1, at="a.py:50"),
            saved(2, 2, nr=1, by="checkpoint", region=1, position=1, at="a.py:50"),
        ],
    )
    assert finding.slug == "checkpoint-different-number"
    assert finding.title == "block recomputed 1 saved tensor, not 2"
    assert str(finding.culprit) == "a.py:50"
    assert "never saved" in finding.explanation


def test_extra_save_of_the_recomputation_is_the_culprit():
    (finding,) = diverged(
        "torch.utils.checkpoint: trying to save more tensors during recomputation",
        again=[
            op("exp", (12,), nr=11, region=1, recompute=1, at="a.py:51"),
            saved(12, 12, nr=11, by="recompute", region=1, recompute=1, position=1, at="a.py:51"),
        ],
        outcome="error",
    )
    assert finding.slug == "checkpoint-more-saved"
    assert (str(finding.culprit), str(finding.victim)) == ("a.py:51", "a.py:51")
    assert "not saved → float32 8" in finding.explanation


def test_explanations_have_at_most_thirty_lines():
    many = [saved(20 + i, 2, by="checkpoint", region=1, position=1 + i) for i in range(50)]
    (finding,) = diverged("A different number of tensors was saved", forward=many)
    assert len(finding.explanation.splitlines()) <= 30
    assert "and 46 more" in finding.explanation


def lost(*facts):
    return found(
        parameter(1, "w"),
        tensor(2),
        facts,
        backward(root_tensor_ids=(9,), at="t.py:8"),
        raised("RuntimeError", "element 0 of tensors does not require grad and does not have a "
               "grad_fn", at="t.py:8"),
    )  # fmt: skip


def test_detach_before_the_loss_is_the_culprit():
    (finding,) = lost(
        op("mul", (3,), inputs=(1, 2), nr=0, at="t.py:2"),
        op("detach", (3,), inputs=(3,), at="t.py:3"),
        op("sum", (9,), inputs=(3,), at="t.py:4"),
    )
    assert finding.slug == "graph-lost"
    assert (str(finding.culprit), str(finding.victim)) == ("t.py:3", "t.py:8")


def test_argmax_before_the_loss_is_the_culprit():
    (finding,) = lost(
        tensor(4, (), dtype="int64"),
        op("mul", (3,), inputs=(1, 2), nr=0, at="t.py:2"),
        op("argmax", (4,), inputs=(3,), at="t.py:3"),
        op("sum", (9,), inputs=(4,), at="t.py:4"),
    )
    assert str(finding.culprit) == "t.py:3"
    assert "integers have no gradient" in finding.explanation


def test_loss_without_a_tensor_that_requires_grad_is_named_with_its_backward():
    (finding,) = lost(op("sum", (9,), inputs=(2,), at="t.py:4"))
    assert finding.title == "The loss has no graph: no tensor behind it requires a gradient"
    assert (str(finding.culprit), finding.confidence) == ("t.py:8", "likely")
