"""Rules about parameters that ``fully_shard`` gathers."""

from make_log import entered, exited, fact, op, raised, recompute, recomputed, saved, tensor
from run_rule import lines, run_rule

from autogradviz.diagnose.rules.fsdp_recomputations import (
    fsdp_recompute_dtype,
    fsdp_recompute_regathers,
)
from autogradviz.events import ParametersUnsharded


def gathered(name, *, region=None, recompute=None):
    return fact(
        ParametersUnsharded, module_id=None, unsharded_parameters=(name,), unsharded_nbytes=1024,
        region_id=region, recompute_id=recompute,
    )  # fmt: skip


def region(number, *inside):
    """Return a region that is entered at one line, and what its recomputation contains."""
    forward = [entered(number, at="net.py:5"), gathered("h.0.weight", region=number)]
    return [*forward, exited(number), recompute(number, number), *inside, recomputed(number)]


def test_gathers_of_recomputations_are_one_finding_for_each_line():
    again = [gathered("h.0.weight", region=n, recompute=n) for n in (1, 2)]
    (found,) = run_rule(fsdp_recompute_regathers, region(1, again[0]), region(2, again[1]))
    assert (found.slug, found.confidence) == ("fsdp-recompute-regathers", "hint")
    assert found.title == "h.0.weight was gathered again inside a recomputation: 2.0 kB"
    assert str(found.culprit) == "net.py:5"
    assert "in 2 gathers" in found.explanation


def test_gathers_of_the_backward_itself_are_no_finding():
    assert run_rule(fsdp_recompute_regathers, region(1), gathered("h.0.weight")) == []


HOOK = ("torch/distributed/utils.py:63", "torch/distributed/fsdp/hooks.py:405", "net.py:5")
DTYPES = [tensor(1), tensor(2, dtype="bfloat16"), tensor(3, dtype="bfloat16"), tensor(4)]
ERROR = raised("RuntimeError", "must have the same dtype")


def converted(*inside, at=HOOK):
    """Return a region that converts tensor 1 to tensor 2, reads it, and is recomputed."""
    return [
        *DTYPES,
        entered(at="net.py:5"),
        op("_to_copy", (2,), inputs=(1,), at=at, region=1),
        op("tanh", (3,), inputs=(2,), at="net.py:8", region=1),
        exited(),
        recompute(),
        *inside,
        recomputed(outcome="failed"),
        ERROR,
    ]


def test_input_that_only_the_forward_converts_is_named():
    again = op("tanh", (4,), inputs=(1,), at="net.py:8", region=1, recompute=1)
    (found,) = run_rule(fsdp_recompute_dtype, *converted(again))
    assert (found.slug, found.confidence) == ("fsdp-recompute-dtype", "certain")
    assert lines(found) == ("net.py:5", "net.py:8")
    assert "from float32 to bfloat16" in found.explanation
    assert "x.to(torch.bfloat16)" in found.fix


def test_input_that_both_runs_convert_is_no_finding():
    again = [
        op("_to_copy", (2,), inputs=(1,), at=HOOK, region=1, recompute=1),
        op("tanh", (3,), inputs=(2,), at="net.py:8", region=1, recompute=1),
    ]
    assert run_rule(fsdp_recompute_dtype, *converted(*again)) == []


def test_conversion_by_the_program_is_not_one_of_fsdp():
    again = op("tanh", (4,), inputs=(1,), at="net.py:8", region=1, recompute=1)
    own = ("net.py:7", *HOOK)
    assert run_rule(fsdp_recompute_dtype, *converted(again, at=own)) == []


def test_saved_tensor_that_only_the_forward_converts_is_named():
    log = converted(saved(2, 1, recompute=1, position=0))
    forward = saved(1, 2, region=1, position=0, at="net.py:8")
    (found,) = run_rule(fsdp_recompute_dtype, *log[:7], forward, *log[7:])
    assert lines(found) == ("net.py:5", "net.py:8")
    assert "recomputation: saves float32 8" in found.explanation
