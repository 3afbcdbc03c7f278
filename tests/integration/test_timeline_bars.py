"""Bars of the timeline lie within the bars that they are drawn below."""

from __future__ import annotations

import pytest
from training_programs import PROGRAMS


def outside(inner, outer):
    return [
        span
        for span in inner
        if not any(each.start_ns <= span.start_ns and span.end_ns <= each.end_ns for each in outer)
    ]


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_no_node_and_no_recomputation_leaves_its_backward(name):
    spans = PROGRAMS[name]()._scene.spans
    calls = [span for span in spans if span.kind == "backward"]
    assert outside([span for span in spans if span.kind in {"node", "recompute"}], calls) == []


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_no_inner_module_leaves_the_module_around_it(name):
    modules = [span for span in PROGRAMS[name]()._scene.spans if span.kind == "module"]
    for depth in {span.depth for span in modules} - {0}:
        inner = [span for span in modules if span.depth == depth]
        assert outside(inner, [span for span in modules if span.depth == depth - 1]) == []
