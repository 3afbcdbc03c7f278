"""The rule about policies of selective checkpointing whose names have no effect."""

from make_log import backward, entered, exited, fact, node, op, recompute, recomputed
from run_rule import lines, run_rule

from autogradviz.diagnose.rules.selective_checkpoints import selective_policy_never_met
from autogradviz.events import PolicyDecided, PolicyRead


def decided(name, decision, *, op_seq):
    return fact(PolicyDecided, op=name, decision=decision, region_id=1, op_seq=op_seq)


def policy(named, decision):
    """Return findings about a policy that names an operator, in a region that runs ``addmm``."""
    return run_rule(
        selective_policy_never_met,
        entered(1, at="net.py:9"),
        fact(
            PolicyRead, region_id=1, function="keep_matmuls", policy_ops=(named,),
            decomposed_ops=(),
        ),
        op("addmm", (2,), region=1, at="net.py:5"),
        op("exp", (3,), region=1),
        decided("aten.addmm.default", decision, op_seq=3),
        decided("aten.exp.default", "prefer_recompute", op_seq=4),
        exited(1),
        node(7, "SumBackward0"),
        backward(roots=(7,)),
        recompute(1, 1),
        recomputed(1),
    )  # fmt: skip


def test_name_of_another_overload_is_found_with_the_operator_that_ran():
    (found,) = policy("aten.mm.default", "prefer_recompute")
    assert (found.slug, found.confidence) == ("selective-policy-never-met", "hint")
    assert lines(found) == ("net.py:9", "net.py:5")
    assert "aten.mm.default" in found.title
    assert "torch.ops.aten.addmm.default" in found.fix


def test_name_of_the_operator_that_ran_is_no_finding():
    assert policy("aten.addmm.default", "must_save") == []
