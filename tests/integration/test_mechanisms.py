"""Every mechanism of autograd and checkpoint is recorded, and drawn."""

import re
from pathlib import Path

import pytest
import torch
from programs import Block, stack
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import autogradviz


def line_of(text):
    """Return the number of the only line of this file that ends with a mark."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if line.endswith(f"# <{text}>")]
    return number


def words_of(trace):
    """Return all words in the picture of a trace, tooltips included."""
    return re.findall(r">([^<>]+)<", trace.graph(depth=9).svg())


# --- reentrant checkpoint ---------------------------------------------------------------------


@pytest.fixture
def reentrant():
    net, x = stack(2), torch.rand(2, 8, requires_grad=True)
    with autogradviz.record(net) as trace:
        y = checkpoint(net[0], x, use_reentrant=True)  # <first>
        checkpoint(net[1], y, use_reentrant=True).sum().backward()
    return trace


def test_reentrant_regions_are_recorded_like_others(reentrant):
    first, second = reentrant.checkpoints()
    assert [(r.function, r.reentrant, r.early_stop, r.preserve_rng) for r in (first, second)] == [
        ("Block.forward", True, False, True)
    ] * 2
    assert first.location.lineno == line_of("first")
    for region in (first, second):
        (again,) = region.recomputations
        assert (again.outcome, again.first_difference) == ("completed", None)
        assert {op.phase for op in region.ops} == {"forward"}
        assert {op.phase for op in again.ops} == {"recompute"}
        assert [p.status for p in again.pairs] == ["same"] * len(region.ops)
        asked = reentrant.model.graph.nodes[again.node_id]
        assert asked.name == "CheckpointFunctionBackward"
    assert len(first.ops) == 7


def test_reentrant_regions_are_drawn(reentrant):
    scene = reentrant.scene
    boxes = [node for node in scene.nodes if node.name == "CheckpointFunctionBackward"]
    assert [(box.op, box.recomputes) for box in boxes] == [("checkpoint", 1)] * 2
    assert [(r.reentrant, r.outcome) for r in scene.regions] == [(True, "completed")] * 2
    assert {row.status for row in scene.diffs} == {"same"}
    assert [s.label for s in scene.spans if s.kind == "recompute"] == ["Block.forward"] * 2
    words = words_of(reentrant)
    assert words.count("checkpoint") == words.count("CheckpointFunctionBackward") == 2


def test_a_region_inside_a_reentrant_one_belongs_to_its_recomputation():
    inner, x = Block(), torch.rand(2, 8, requires_grad=True)

    def outer(t):
        return checkpoint(inner, t * 2, use_reentrant=False).sin()

    with autogradviz.record() as trace:
        checkpoint(outer, x, use_reentrant=True).sum().backward()
    regions = trace.checkpoints()
    assert [(r.function.split(".")[-1], r.parent_region_id) for r in regions] == [
        ("outer", None),
        ("forward", 0),  # the first run is without gradients: checkpoint steps aside there
    ]
    assert [[again.outcome for again in r.recomputations] for r in regions] == [
        ["completed"],
        ["early_stop"],
    ]
    assert regions[0].recomputations[0].first_difference is None


def test_segments_of_both_kinds_are_recorded():
    for kind in (True, False):
        net, x = stack(4), torch.rand(2, 8, requires_grad=True)
        with autogradviz.record(net) as trace:
            checkpoint_sequential(net, 2, x, use_reentrant=kind).sum().backward()
        (region,) = trace.checkpoints()  # the last segment is not checkpointed
        assert (region.reentrant, len(region.ops)) == (kind, 14)
        (again,) = region.recomputations
        assert [p.status for p in again.pairs][-1] == ("same" if kind else "not_rerun")
        assert again.first_difference is None


def test_a_reentrant_recomputation_that_fails_says_so():
    calls, message = [], "no"

    def work(x):
        calls.append(1)
        if len(calls) > 1:
            raise ValueError(message)
        return x.exp()

    with autogradviz.record() as trace, pytest.raises(ValueError, match="no"):
        checkpoint(work, torch.rand(3, requires_grad=True), use_reentrant=True).sum().backward()
    (region,) = trace.checkpoints()
    assert [again.outcome for again in region.recomputations] == ["error"]
    assert trace.scene.regions[0].outcome == "error"


def test_a_reentrant_region_that_runs_otherwise_shows_where():
    calls = []

    def work(x):
        calls.append(1)
        y = x.exp()
        if len(calls) > 1:
            y = y.sin()  # <extra>
        return y * 2

    with autogradviz.record() as trace:
        checkpoint(work, torch.rand(3, requires_grad=True), use_reentrant=True).sum().backward()
    (region,) = trace.checkpoints()
    (again,) = region.recomputations
    assert [p.status for p in again.pairs] == ["same", "added", "same"]
    assert again.pairs[again.first_difference].recompute.location.lineno == line_of("extra")
