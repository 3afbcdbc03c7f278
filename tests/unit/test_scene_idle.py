"""Intervals in which nothing ran are drawn short."""

from __future__ import annotations

from types import SimpleNamespace

import make_log as m
import pytest
from make_log import backward, backward_ended, fact, make_log, op

from autogradviz.analysis import Analysis
from autogradviz.analysis.compile_intervals import compile_intervals
from autogradviz.analysis.flame_graph import self_times
from autogradviz.analysis.formatting import format_duration
from autogradviz.analysis.idle_time import active_time, busy_time, find_idle
from autogradviz.analysis.phase_times import measure_phases
from autogradviz.events import CompileEnded, CompileStarted
from autogradviz.render.terminal_text import ops_text
from autogradviz.scene import build_scene


def recording(*, state, end_ns=10_000):
    """Return a recording with one op, then one node whose run has no end."""
    node = SimpleNamespace(ran=((100, None),), state=state)
    op = SimpleNamespace(time_ns=0, duration_ns=100)
    graph, log = SimpleNamespace(nodes={1: node}), SimpleNamespace(of=lambda kind: ())
    return SimpleNamespace(ops=[op], graph=graph, log=log, modules={}, end_ns=end_ns)


@pytest.mark.parametrize(("state", "idle"), [("failed", (100, 10_000)), ("ran", ())])
def test_time_after_a_failure_is_idle_and_a_torn_run_is_not(state, idle):
    assert find_idle(recording(state=state)) == idle


def test_idle_time_is_in_no_phase():
    step = [op("exp", duration_ns=100), op("sin", duration_ns=300), backward(), backward_ended()]
    analysis = Analysis(make_log(step))
    assert find_idle(analysis)[:4] == (0, 1000, 1100, 2000)
    busy = busy_time(analysis)
    assert [busy(time) for time in (500, 1000, 1050, 1500, 2000, 2300)] == [0, 0, 50, 100, 100, 400]
    assert measure_phases(analysis).forward_ns == 400


@pytest.mark.parametrize(("state", "self_ns"), [("failed", 0), ("ran", 9_900)])
def test_idle_time_after_a_failure_is_no_time_of_the_node(state, self_ns):
    analysis = recording(state=state)
    span = SimpleNamespace(kind="node", thread=0, start_ns=100, end_ns=10_000)
    analysis.timeline = SimpleNamespace(spans=[span])
    assert list(self_times(analysis)) == [(span, self_ns)]


def test_the_time_of_a_recomputation_that_failed_is_that_of_phases():
    analysis = Analysis(
        make_log(
            m.entered(1),
            op("exp", (1,), nr=0, region=1, duration_ns=100),
            m.exited(1),
            m.node(1, "ExpBackward0", nr=0),
            m.saved(1, 1, node=1, slot="result", nr=0, by="checkpoint", region=1, position=0),
            backward(roots=(1,)),
            m.started(1),
            m.recompute(1, 1, node=1),
            op("exp", (2,), recompute=1, duration_ns=100),
            m.recomputed(1, "error"),
            backward_ended(failed=True),
        )
    )
    scene = build_scene(analysis, ())
    [region], [node] = scene.regions, scene.nodes
    [again] = analysis.regions[0].recomputations
    assert again.duration_ns > region.recompute_ns > 0
    assert region.recompute_ns == measure_phases(analysis).recomputation_ns
    busy, [(start, _)] = busy_time(analysis), analysis.graph.nodes[1].ran
    assert analysis.graph.nodes[1].duration_ns > node.duration_ns
    assert node.duration_ns == busy(analysis.end_ns) - busy(start)


def test_active_time_has_the_compilations_in_which_nothing_else_ran():
    compiles = [
        fact(CompileStarted, compile_id="0/0", trigger="dynamo"),
        fact(CompileEnded, compile_id="0/0", trigger="dynamo"),
    ]
    analysis = Analysis(make_log([op("exp", duration_ns=100), *compiles, op("sin")]))
    idle = find_idle(analysis)
    [(start, end)] = compile_intervals(analysis.log, analysis.end_ns)
    assert any(a <= start < end <= b for a, b in zip(idle[::2], idle[1::2], strict=True))
    outside = analysis.end_ns - sum(idle[1::2]) + sum(idle[::2])
    assert active_time(analysis) == outside + end - start
    assert f"{format_duration(end - start)} of it compiling" in ops_text(analysis)
