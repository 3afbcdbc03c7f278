"""Checkpointed regions, and the alignment of a recomputation with its forward."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from make_log import (
    entered,
    entered_module,
    exited,
    make_log,
    module,
    op,
    parameter,
    recompute,
    recomputed,
    saved,
    tensor,
)

from autogradviz.analysis import Analysis
from autogradviz.analysis.align_ops import WINDOW, match


def regions_of(*facts):
    return Analysis(make_log(*facts)).regions


def rows(recomputation):
    return [
        (
            pair.status,
            pair.forward.name if pair.forward else "",
            pair.recompute.name if pair.recompute else "",
        )
        for pair in recomputation.pairs
    ]


def two_runs(forward, again, outcome="completed"):
    """Return the recomputation of a region with ops ``forward``, and ``again`` when recomputed."""
    (region,) = regions_of(
        entered(1),
        [op(name, region=1) for name in forward],
        exited(1),
        recompute(1, 1),
        [op(name, region=1, recompute=1) for name in again],
        recomputed(1, outcome),
    )
    (recomputation,) = region.recomputations
    return recomputation


def test_region_has_a_location_and_ordered_ops_and_saves():
    (region,) = regions_of(
        module(0, "h.0", "Block"),
        entered_module(1, 0),
        op("sin", (9,)),
        entered(1, call=1, function="Block.forward", at=("torch/utils/checkpoint.py:5", "m.py:3")),
        op("exp", (1,), region=1),
        saved(2, 2, by="checkpoint", region=1, position=1),
        saved(1, 1, by="checkpoint", region=1, position=0),
        exited(1),
        op("cos", (3,)),
    )
    assert (region.module, region.function, str(region.location)) == (
        "h.0",
        "Block.forward",
        "m.py:3",
    )
    assert [each.name for each in region.ops] == ["exp"]
    assert [each.saved_id for each in region.saved] == [1, 2]
    assert (region.entered_seq, region.exited_seq, region.duration_ns, region.recomputations) == (
        4,
        8,
        4000,
        (),
    )


def statuses(read, again, *, hashes=((), ()), inside=()):
    """The statuses of a region whose runs each read one tensor; 1 to 4 are there before it."""
    (region,) = regions_of(
        *(parameter(each, f"w{each}") for each in (1, 2)),
        [op("rand", (each,)) for each in (3, 4)],
        entered(1),
        *inside,
        op("mul", (7,), inputs=(read,), input_hashes=hashes[0], region=1),
        exited(1),
        recompute(1, 1),
        op("mul", (8,), inputs=(again,), input_hashes=hashes[1], region=1, recompute=1),
        recomputed(1),
    )
    (recomputation,) = region.recomputations
    differs = recomputation.first_difference is not None
    return [pair.status for pair in recomputation.pairs if pair.recompute], differs


def test_an_op_that_reads_another_parameter_or_an_earlier_tensor_differs():
    assert statuses(1, 2) == (["other_input"], True)
    assert statuses(3, 4) == (["other_input"], True)
    assert statuses(1, 2, hashes=((5,), (5,))) == (["other_input"], True)  # other gradients
    assert statuses(3, 4, hashes=((5,), (6,))) == (["other_input"], True)


def test_equal_inputs_and_results_of_the_runs_do_not_differ():
    assert statuses(3, 3) == (["same"], False)
    assert statuses(3, 4, hashes=((5,), (5,))) == (["same"], False)
    made = [tensor(5), tensor(6)]
    assert statuses(5, 6, inside=made) == (["same"], False)
    written = op("copy_", (3,), inputs=(3, 1), writes=(3,), region=1)
    assert statuses(3, 4, inside=[written])[0] == ["same"]


def test_region_contains_the_ops_of_nested_regions():
    outer, inner = regions_of(
        entered(1),
        op("exp", region=1),
        entered(2, parent=1),
        op("sin", region=2),
        exited(2),
        op("cos", region=1),
        exited(1),
    )
    assert [each.name for each in outer.ops] == ["exp", "sin", "cos"]
    assert [each.name for each in inner.ops] == ["sin"]


def test_forward_of_a_region_entered_in_a_recomputation_is_that_recomputation():
    outer, first, again = regions_of(
        entered(1),
        entered(2, parent=1),
        op("sin", region=2),
        saved(1, by="checkpoint", region=2, position=0),
        exited(2),
        exited(1),
        recompute(1, 1),
        entered(3, parent=1),
        op("sin", region=3, recompute=1),
        saved(2, by="checkpoint", region=3, recompute=1, position=0),
        exited(3),
        recomputed(1),
        recompute(2, 3),
        op("sin", region=3, recompute=2),
        saved(3, by="recompute", region=3, recompute=2, position=0),
        recomputed(2),
    )
    assert [[o.seq for o in r.ops] for r in (outer, first, again)] == [[3], [3], [9]]
    assert [[s.saved_id for s in r.saved] for r in (outer, first, again)] == [[], [1], [2]]
    assert rows(outer.recomputations[0]) == [("same", "sin", "sin")]
    assert rows(again.recomputations[0]) == [("same", "sin", "sin")]
    assert [s.saved_id for s in again.recomputations[0].saved] == [3]


def test_recomputation_contains_the_ops_of_nested_recomputations():
    outer, inner = regions_of(
        entered(1),
        entered(2, parent=1),
        op("sin", region=2),
        exited(2),
        exited(1),
        recompute(1, 1),
        recompute(2, 2),
        op("sin", region=2, recompute=2),
        recomputed(2),
        recomputed(1),
    )
    assert [each.seq for each in outer.recomputations[0].ops] == [8]
    assert [each.seq for each in inner.recomputations[0].ops] == [8]


def test_detach_of_checkpoint_is_omitted_and_detach_of_the_user_is_kept():
    own = ("torch/_dynamo/eval_frame.py:1", "C:\\torch\\utils\\checkpoint.py:20", "m.py:3")
    (region,) = regions_of(
        entered(1), op("detach", region=1, at=own), op("detach", region=1, at="m.py:4"), exited(1)
    )
    assert [str(each.location) for each in region.ops] == ["m.py:4"]


def test_region_contains_ops_of_backwards_inside_it_only():
    (region,) = regions_of(
        entered(1), op("exp", region=1, phase="backward"), exited(1), op("mul", phase="backward")
    )
    assert [each.name for each in region.ops] == ["exp"]


def test_equal_runs_have_no_difference():
    recomputation = two_runs(["exp", "sin"], ["exp", "sin"])
    assert rows(recomputation) == [("same", "exp", "exp"), ("same", "sin", "sin")]
    assert recomputation.first_difference is None


def test_op_that_ran_only_once_is_removed_or_added():
    recomputation = two_runs(["exp", "mul", "sin"], ["exp", "sin", "cos"])
    assert rows(recomputation) == [
        ("same", "exp", "exp"),
        ("removed", "mul", ""),
        ("same", "sin", "sin"),
        ("added", "", "cos"),
    ]
    assert recomputation.first_difference == 1


def test_ops_after_an_early_stop_are_not_differences():
    recomputation = two_runs(["exp", "sin", "exp"], ["exp"], "early_stop")
    assert rows(recomputation) == [
        ("same", "exp", "exp"),
        ("not_rerun", "sin", ""),
        ("not_rerun", "exp", ""),
    ]
    assert recomputation.first_difference is None


def test_missing_ops_of_a_completed_recomputation_are_differences():
    recomputation = two_runs(["exp", "sin"], ["exp"])
    assert rows(recomputation) == [("same", "exp", "exp"), ("removed", "sin", "")]
    assert recomputation.first_difference == 1


def test_op_with_another_shape_is_changed():
    (region,) = regions_of(
        tensor(1, (4,)),
        tensor(2, (5,)),
        entered(1),
        op("exp", (1,), region=1, at="m.py:1"),
        exited(1),
        recompute(1, 1),
        op("exp", (2,), region=1, recompute=1, at="m.py:1"),
        recomputed(1),
    )
    assert rows(region.recomputations[0]) == [("changed", "exp", "exp")]
    assert region.recomputations[0].first_difference == 0


def test_op_on_another_line_is_another_op():
    (region,) = regions_of(
        entered(1),
        op("exp", region=1, at="m.py:1"),
        exited(1),
        recompute(1, 1),
        op("exp", region=1, recompute=1, at="m.py:2"),
        recomputed(1),
    )
    assert rows(region.recomputations[0]) == [("removed", "exp", ""), ("added", "", "exp")]


def test_unfinished_recomputation_has_no_outcome_and_no_missing_ops():
    (region,) = regions_of(
        entered(1), op("exp", region=1), exited(1), recompute(1, 1, backward=4, node=6)
    )
    (torn,) = region.recomputations
    assert (torn.outcome, torn.stopped_seq, torn.duration_ns) == (None, None, 0)
    assert (torn.backward_id, torn.node_id, rows(torn)) == (4, 6, [("not_rerun", "exp", "")])


KEYS = st.lists(st.sampled_from("abc"), max_size=12)


def longest_common_subsequence(a, b):
    """Return the length, by dynamic programming."""
    row = [0] * (len(b) + 1)
    for x in a:
        above = row[:]
        for j, y in enumerate(b):
            row[j + 1] = above[j] + 1 if x == y else max(above[j + 1], row[j])
    return row[-1]


@given(KEYS, KEYS)
def test_alignment_matches_a_longest_common_subsequence(a, b):
    matches = match(a, b, free_tail=False)
    assert all(a[i] == b[j] for i, j in matches)
    assert matches == sorted(set(matches))
    assert len({i for i, _ in matches}) == len({j for _, j in matches}) == len(matches)
    assert len(matches) == longest_common_subsequence(a, b)


@given(KEYS, KEYS)
def test_alignment_with_a_free_tail_needs_the_fewest_edits(a, b):
    matches = match(a, b, free_tail=True)
    assert all(a[i] == b[j] for i, j in matches)
    fewest = min(n + len(b) - 2 * longest_common_subsequence(a[:n], b) for n in range(len(a) + 1))
    used = matches[-1][0] + 1 if matches else 0
    assert used + len(b) - 2 * len(matches) == fewest


def test_runs_without_common_ops_have_no_matches():
    assert match(["a"] * 5_000, ["b"] * 5_000, free_tail=False) == []


def test_additional_block_of_any_length_is_found():
    head, tail = [f"h{i}" for i in range(500)], [f"t{i}" for i in range(500)]
    block = ["x"] * 3 * WINDOW
    matches = match([*head, *block, *tail], head + tail, free_tail=False)
    assert matches == [(i if i < 500 else i + len(block), i) for i in range(1_000)]


def test_distant_differences_are_aligned_window_by_window():
    a = [key for i in range(WINDOW) for key in (f"k{i}", "x", f"l{i}", "x", f"m{i}")]
    b = [key for i in range(WINDOW) for key in (f"k{i}", f"l{i}", "y", f"m{i}")]
    assert len(match(a, b, free_tail=False)) == 3 * WINDOW


def test_region_has_the_name_of_its_checkpointed_module():
    model = Analysis(
        make_log(
            module(0, "", "Net"),
            module(1, "h.0", "Block", parent=0),
            entered_module(5, 0),
            entered(1, call=5, module_id=1),
            entered(2, call=5),
        )
    )
    assert [region.module for region in model.regions] == ["h.0", ""]


def test_region_with_library_frames_only_has_the_same_line_in_both_runs():
    linear = "torch/nn/modules/linear.py:9"
    again = (linear, "torch/utils/checkpoint.py:5", "train.py:80")
    model = Analysis(
        make_log(
            entered(1, at="train.py:7"),
            op(
                "addmm",
                (1,),
                nr=0,
                region=1,
                at=(linear, "torch/utils/checkpoint.py:1", "train.py:7"),
            ),
            exited(1),
            recompute(1, 1),
            op("addmm", (2,), nr=1, region=1, recompute=1, at=again),
            recomputed(1),
        )
    )
    (pair,) = model.regions[0].recomputations[0].pairs
    assert pair.status == "same"
    assert [str(o.location) for o in (pair.forward, pair.recompute)] == ["train.py:7"] * 2
