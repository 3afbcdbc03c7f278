"""Differences between two recordings."""

import json

import make_log as m
import pytest

import autogradviz
from autogradviz import event_log
from autogradviz.analysis import Analysis
from autogradviz.cli import main
from autogradviz.comparison.compare_traces import compare
from autogradviz.comparison.result import Comparison, Difference
from autogradviz.comparison.rounding_of_gradients import rounding_between
from autogradviz.events import LeafGradientRead, NormRead, RankSeen, StepEnded
from autogradviz.trace import Trace

STEP = (
    m.tensor(1),
    m.tensor(2),
    m.op("exp", (1,), nr=0, at="train.py:4"),
    m.node(1, "ExpBackward0", nr=0),
    m.saved(1, 1, node=1, slot="result", nr=0),
)


def trace(*facts):
    return Trace(m.make_log(*facts, m.ended(event_count=len(m.make_log(*facts)))))


def fields_of(comparison):
    return [(d.aspect, d.what, d.before, d.after) for d in comparison]


def test_equal_recordings_have_no_differences():
    comparison = compare(trace(*STEP), trace(*STEP))
    assert not comparison
    assert repr(comparison) == "No differences."
    assert comparison._repr_html_() == "<p>No differences.</p>"


def test_a_path_is_refused():
    with pytest.raises(TypeError, match=r"takes two traces, not str; load\(\) opens a file"):
        compare("before.agv", trace(*STEP))


def test_different_operator_and_its_saved_tensors_are_reported():
    other = (
        m.tensor(1),
        m.tensor(2),
        m.op("tanh", (1,), nr=0, at="train.py:4"),
        m.node(1, "TanhBackward0", nr=0),
        m.saved(1, 1, node=1, slot="result", nr=0),
    )
    assert fields_of(compare(trace(*STEP), trace(*other))) == [
        (
            "ops",
            "first difference",
            "exp → float32[8] at train.py:4",
            "tanh → float32[8] at train.py:4",
        ),
        ("ops", "exp, forward", "1", "0"),
        ("ops", "tanh, forward", "0", "1"),
        ("saved", "ExpBackward0.result", "1", "0"),
        ("saved", "TanhBackward0.result", "0", "1"),
    ]


def test_additional_saved_bytes_and_writes_are_reported():
    more = (
        *STEP,
        m.op("mul_", (1,), inputs=(1,), writes=(1,)),
        m.bumped("aten.mul_.Tensor", op_seq=6),
        m.saved(2, 2, node=1, slot="other", nr=0),
    )
    differences = fields_of(compare(trace(*STEP), trace(*more)))
    assert ("saved", "bytes at the peak", "32 B", "64 B") in differences
    assert ("writes", "mul_ on a saved tensor, at any time", "0", "1") in differences


def test_values_are_compared_if_both_recordings_have_them():
    def step(content):
        return trace(m.tensor(1), m.op("exp", (1,), output_hashes=(content,)))

    assert fields_of(compare(step(5), step(6))) == [
        ("values", "first difference", "exp → float32[8]", "exp → float32[8]")
    ]
    assert not compare(step(5), step(-1))


def leaves(*norms, arrived=True):
    """Return facts of the gradients of parameters "w0", "w1", …, with their norms."""
    return [
        [
            m.tensor(i),
            m.parameter(i, f"w{i}"),
            m.leaf(i, i),
            m.accumulated(i, i) if arrived else [],
            m.fact(NormRead, backward_id=1, tensor_id=i, place="gradient", norm=norm),
        ]
        for i, norm in enumerate(norms)
    ]


def test_missing_gradient_is_reported():
    model = m.module(0, "")
    found = compare(trace(model, leaves(1.0)), trace(model, leaves(1.0, arrived=False)))
    assert fields_of(found) == [("gradients", "w0", "arrived", "none")]


def test_non_finite_gradient_is_reported():
    model = m.module(0, "")
    found = compare(trace(model, leaves(1.0, 2.0)), trace(model, leaves(1.0, None)))
    assert fields_of(found) == [("gradients", "w1", "arrived", "NaN or infinite")]


def test_many_equal_gradient_changes_are_summarized():
    model = m.module(0, "")
    found = compare(trace(model, leaves(*[1.0] * 8)), trace(model, leaves(*[None] * 7, 1.0)))
    assert [what for _, what, *_ in fields_of(found)] == ["w0", "w1", "w2", "w3", "w4", "2 others"]
    assert {each[2:] for each in fields_of(found)} == {("arrived", "NaN or infinite")}


def test_growth_in_proportion_to_the_steps_is_summarized():
    step = (m.op("exp", (1,)), m.op("sin", (1,)), m.fact(StepEnded, step=0))
    two = trace(m.tensor(1), *step, *step)
    six = trace(m.tensor(1), *step * 6, m.op("cos", (1,)))
    assert fields_of(compare(two, six)) == [
        ("steps", "steps that ended", "2", "6"),
        ("ops", "cos, forward", "0", "1"),
        ("ops", "2 counts", "", "in proportion to the steps"),
    ]


def test_counts_are_listed_if_no_step_ended():
    before = trace(m.tensor(1), *(m.op("exp", (1,)),) * 2)
    after = trace(m.tensor(1), *(m.op("exp", (1,)),) * 3)
    assert fields_of(compare(before, after)) == [("ops", "exp, forward", "2", "3")]


def test_checkpoints_of_numbered_blocks_are_counted_together():
    regions = [
        [
            m.entered(i, function=f"h.{i}"),
            m.exited(i),
            m.recompute(i, i),
            m.recomputed(i, "early_stop"),
        ]
        for i in range(3)
    ]
    assert fields_of(compare(trace(*STEP), trace(*STEP, regions))) == [
        ("checkpoint", "regions of h.*", "0", "3"),
        ("checkpoint", "recomputations of h.*, early stop", "0", "3"),
    ]


def test_largest_norm_changes_come_first_and_the_rest_are_counted():
    model = m.module(0, "")
    before = [1.0, 2.0, 0.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    after = [1.000001, 1.0, 0.5, 8.0, 5.1, 6.3, 8.0, 8.2]
    found = compare(trace(model, leaves(*before)), trace(model, leaves(*after)))
    assert fields_of(found) == [
        ("gradients", "norm of w2", "0", "0.5"),
        ("gradients", "norm of w1", "2", "1"),
        ("gradients", "norm of w3", "4", "8"),
        ("gradients", "norm of w6", "7", "8"),
        ("gradients", "norm of w5", "6", "6.3"),
        ("gradients", "norms of 2 others", "", "differ by up to 2.4%"),
    ]


def test_errors_are_compared():
    failing = trace(*STEP, m.raised("RuntimeError", "no", node=1))
    assert fields_of(compare(trace(*STEP), failing)) == [
        ("error", "raised", "none", "RuntimeError")
    ]


def test_hostile_names_are_escaped():
    name = "<script>alert(1)</script>\x1b[2J[bold]"
    comparison = Comparison(
        (Difference(aspect="ops", what=name, before="1", after="2"),), titles=("<b>", name)
    )
    assert "<script>" not in comparison._repr_html_()
    assert "&lt;script&gt;" in comparison._repr_html_()
    assert "\x1b" not in repr(comparison)
    assert "[bold]" in repr(comparison)


def test_compare_command_prints_differences(tmp_path, capsys):
    for name, facts in (("a", STEP), ("b", STEP[:3])):
        event_log.save(trace(*facts).log, tmp_path / f"{name}.agv")
    a, b = str(tmp_path / "a.agv"), str(tmp_path / "b.agv")
    assert main(["compare", a, a]) == 0
    assert main(["compare", a, b, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("No differences.\n")
    (saved, peak) = json.loads(out.removeprefix("No differences.\n"))
    assert (saved["what"], saved["after"]) == ("ExpBackward0.result", "0")
    assert peak["what"] == "bytes at the peak"


def test_piped_differences_are_on_one_line_each(tmp_path, capsys):
    for name in ("before", "after"):
        line = f"a_long_name_of_a_folder_and_a_file_of_the_program_{name}.py:4"
        facts = (m.tensor(1), m.op(name, (1,), nr=0, at=line))
        event_log.save(trace(*facts).log, tmp_path / f"{name}.agv")
    assert main(["compare", str(tmp_path / "before.agv"), str(tmp_path / "after.agv")]) == 0
    (line,) = [each for each in capsys.readouterr().out.splitlines() if "first difference" in each]
    assert line.count("a_long_name_of_a_folder_and_a_file_of_the_program_") == 2


def test_compare_is_public():
    assert autogradviz.compare is compare


# --- rounding -------------------------------------------------------------------------------------


def rounding(dtype, *, elements=100):
    log = m.make_log(m.tensor(1, shape=(elements,), dtype=dtype), m.op("exp", (1,)), leaves(1.0))
    return rounding_between(Analysis(log))


def test_bound_grows_with_the_roundoff_of_the_dtype_and_the_number_of_terms():
    single, half = rounding("float32"), rounding("bfloat16")
    assert (single.roundoff, half.roundoff) == (2.0**-24, 2.0**-8)
    assert single.summed == half.summed == 2.0**-24
    assert half.bound(1.0) > 500 * single.bound(1.0)
    assert rounding("float32", elements=10_000).bound(1.0) > 5 * single.bound(1.0)


def test_gradient_that_is_all_rounding_is_compared_with_the_largest_one():
    model = m.module(0, "")
    first, second = leaves(1.0, 3e-8), leaves(1.0, 9e-8)
    assert not compare(trace(model, first), trace(model, second))
    alone = compare(trace(model, leaves(3e-8)), trace(model, leaves(9e-8)))
    assert fields_of(alone) == [("gradients", "norm of w0", "3e-08", "9e-08")]


def test_norms_have_enough_digits_to_differ():
    model = m.module(0, "")
    found = compare(trace(model, leaves(1.0)), trace(model, leaves(1.00004)))
    assert fields_of(found) == [("gradients", "norm of w0", "1", "1.00004")]


def scaled(*norms, factor=1.0, more=()):
    """Return a trace with gradients that have a factor."""
    return trace(m.module(0, ""), leaves(*[factor * norm for norm in norms]), more)


def gradients(before, after):
    return [fields[1:] for fields in fields_of(compare(before, after)) if fields[0] == "gradients"]


def test_one_factor_of_all_gradients_is_named():
    found = gradients(scaled(1.0, 0.3, 2.0), scaled(1.0, 0.3, 2.0, factor=8.0))
    assert found == [("norms of 3 gradients", "×1", "×8")]
    found = gradients(scaled(1.0, 0.3), scaled(1.0, 0.3, factor=0.25))
    assert found == [("norms of 2 gradients", "×1", "×0.25 (1/4)")]


def test_a_factor_of_some_gradients_is_named_and_the_others_are_counted():
    found = gradients(scaled(1.0, 0.3, 2.0), trace(m.module(0, ""), leaves(4.0, 1.2, 2.0)))
    assert found == [("norms of 2 gradients; 1 others are equal", "×1", "×4")]


def test_gradients_that_share_no_factor_have_none():
    found = gradients(scaled(1.0, 0.3, 2.0), trace(m.module(0, ""), leaves(4.0, 0.5, 3.0)))
    assert [what for what, _, _ in found] == ["norm of w0", "norm of w1", "norm of w2"]


def test_one_gradient_alone_shares_no_factor():
    assert gradients(scaled(1.0), scaled(8.0)) == [("norm of w0", "1", "8")]


def test_sums_of_entries_confirm_or_refute_a_factor():
    def sums(*numbers):
        return [
            m.fact(LeafGradientRead, tensor_id=i, entry_sum=number, norm=1.0)
            for i, number in enumerate(numbers)
        ]

    same = gradients(scaled(1.0, more=sums(0.5)), scaled(8.0, more=sums(4.0)))
    assert same == [("norms and sums of 1 gradient", "×1", "×8")]
    other = gradients(scaled(1.0, 2.0, more=sums(0.5, 1)), scaled(8.0, 16.0, more=sums(-4.0, 1)))
    assert [what for what, _, _ in other] == ["norm of w0", "norm of w1"]


def test_ranks_and_backwards_explain_a_factor():
    def run(factor, ranks, backwards):
        seen = m.fact(RankSeen, rank=0, world_size=ranks)
        return scaled(
            1.0, 2.0, factor=factor, more=[seen, *map(m.backward, range(2, 2 + backwards))]
        )

    found = gradients(run(1.0, 1, 3), run(4.0, 4, 3))
    assert found[1:] == [("may explain ×4: ranks", "1", "4")]
    found = gradients(run(1.0, 2, 1), run(3.0, 2, 3))
    assert found[1:] == [("may explain ×3: backwards per step", "1", "3")]
    found = gradients(run(1.0, 2, 1), run(2.0, 2, 1))
    assert found[1:] == [("may explain ×2: ranks, in both", "2", "2")]
