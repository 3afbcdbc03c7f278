"""Differences between tensors saved in forward and in recomputation."""

from __future__ import annotations

import make_log as m

from autogradviz.analysis import Analysis
from autogradviz.scene.region_and_recomputation_tables import build_saved_diffs


def region(*, outcome, again):
    """Return the rows of a region that saved 4×8 three times, and then the shapes in ``again``."""
    facts = [m.began(), m.tensor(1, (4, 8)), m.entered(1)]
    facts += [
        m.saved(10 + i, 1, region=1, by="checkpoint", position=i, slot="self") for i in range(3)
    ]
    facts += [m.exited(1), m.backward(), m.recompute(1, 1)]
    for i, shape in enumerate(again):
        facts.append(m.tensor(2 + i, shape))
        saved = m.saved(20 + i, 2 + i, region=1, recompute=1, by="recompute", position=i)
        facts.append(saved)
    facts.append(m.recomputed(1, outcome=outcome))
    return [
        (row.region, row.position, row.before, row.after)
        for row in build_saved_diffs(Analysis(m.make_log(*facts)))
    ]


def test_different_shapes_are_reported_by_position():
    rows = region(outcome="error", again=[(4, 8), (4, 16), (4, 8)])
    assert rows == [(0, 1, "float32 4×8", "float32 4×16")]


def test_tensors_saved_by_one_run_only_are_reported():
    rows = region(outcome="completed", again=[(4, 8), (4, 8)])
    assert rows == [(0, 2, "float32 4×8", "not saved")]
    rows = region(outcome="error", again=[(4, 8)] * 4)
    assert rows == [(0, 3, "not saved", "float32 4×8")]


def test_tensors_omitted_by_an_early_stop_are_not_differences():
    assert region(outcome="early_stop", again=[(4, 8), (4, 8)]) == []


def test_a_save_that_is_missing_does_not_shift_the_ones_after_it():
    facts = [m.began(), *(m.tensor(i, (i, 8)) for i in range(1, 7)), m.entered(1)]
    for i, name in enumerate(("mul", "masked_fill", "exp")):
        facts.append(m.op(name, [1 + i], nr=i, region=1, at=f"net.py:{i + 1}"))
        facts.append(m.saved(10 + i, 1 + i, nr=i, region=1, by="checkpoint", position=i))
    facts += [m.exited(1), m.backward(), m.recompute(1, 1)]
    for i, (name, line) in enumerate((("mul", 1), ("exp", 3))):
        shape = 1 + 2 * i
        facts.append(m.op(name, [shape], nr=5 + i, region=1, recompute=1, at=f"net.py:{line}"))
        again = {"region": 1, "recompute": 1, "by": "recompute", "position": i}
        facts.append(m.saved(20 + i, shape, nr=5 + i, **again))
    facts.append(m.recomputed(1, outcome="completed"))
    rows = build_saved_diffs(Analysis(m.make_log(*facts)))
    assert [(row.position, row.before, row.after) for row in rows] == [
        (1, "float32 2×8", "not saved")
    ]
