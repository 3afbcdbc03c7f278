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
