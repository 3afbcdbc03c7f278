"""Rules about parameters that ``fully_shard`` gathers."""

from make_log import entered, exited, fact, recompute, recomputed
from run_rule import run_rule

from autogradviz.diagnose.rules.fsdp_recompute_regathers import fsdp_recompute_regathers
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
