"""Times of compiled regions and of compilations: each counts once, in one place."""

from __future__ import annotations

from make_log import (
    backward,
    backward_ended,
    entered_module,
    exited_module,
    fact,
    finished,
    make_log,
    module,
    node,
    op,
    started,
)

from autogradviz.analysis import Analysis
from autogradviz.analysis.compiled_region_times import region_times
from autogradviz.analysis.flame_graph import self_times
from autogradviz.analysis.phase_times import measure_phases
from autogradviz.events import CompileEnded, CompileStarted, RegionRan

EVENT_NS = 1000
"""The time between two events of a log."""


def ran_region(node_id):
    return fact(
        RegionRan,
        compiled_region_id=0,
        node_id=node_id,
        sequence_nr=node_id,
        tensor_ids=(),
        saved_versions=(),
        early=False,
    )


def compiled(trigger, length=1):
    """Return a compilation during which the clock counts some events."""
    named = {"compile_id": "0/0", "trigger": trigger}
    waits = [fact(CompileStarted, compile_id=f"1/{at}", trigger=trigger) for at in range(length)]
    ends = [fact(CompileEnded, compile_id=f"1/{at}", trigger=trigger) for at in range(length)]
    return [fact(CompileStarted, **named), *waits, *ends, fact(CompileEnded, **named)]


def step(node_id, *, forward=(), in_node=()):
    """Return a step whose model is one compiled region, with a loss outside of it."""
    return [
        entered_module(node_id, 1),
        *forward,
        ran_region(node_id),
        exited_module(node_id),
        node(node_id, "CompiledFunctionBackward", nr=node_id),
        op("sum", duration_ns=200),
        backward(node_id, roots=(node_id,)),
        started(node_id, backward=node_id),
        *in_node,
        finished(node_id, backward=node_id),
        backward_ended(node_id),
    ]


def spans_of(analysis, kind):
    return [span for span in analysis.timeline.spans if span.kind == kind and not span.depth]


def test_a_forward_begins_with_the_module_of_its_compiled_region():
    analysis = Analysis(make_log(module(1, "net"), *step(1), *step(2)))
    forwards, modules = spans_of(analysis, "forward"), spans_of(analysis, "module")
    assert [each.start_ns for each in forwards] == [each.start_ns for each in modules]
    runs = region_times(analysis)
    assert len(runs) == len(forwards) == 2
    for run, forward in zip(runs, forwards, strict=True):
        assert forward.start_ns <= run.start_ns < run.end_ns <= forward.end_ns
    assert sum(run.own_ns for run in runs) <= measure_phases(analysis).forward_ns


def test_a_compilation_is_in_no_phase_and_no_node_wherever_it_runs():
    first = step(1, forward=compiled("dynamo", 9), in_node=compiled("backward", 9))
    analysis = Analysis(make_log(module(1, "net"), *first, *step(2)))
    times = measure_phases(analysis)
    assert times.compile_ns == 2 * 19 * EVENT_NS
    for phase in (spans_of(analysis, "forward"), spans_of(analysis, "backward")):
        assert sum(each.end_ns - each.start_ns for each in phase) > 19 * EVENT_NS
    assert 2 * EVENT_NS <= times.backward_ns < 10 * EVENT_NS
    assert 2 * EVENT_NS <= times.forward_ns < 10 * EVENT_NS
    assert "compiling" in repr(times)
    assert [each.duration_ns for each in analysis.graph.nodes.values()] == [2000, 1000]
    assert [ns for _, ns in self_times(analysis)] == [2000, 1000]


def test_a_region_that_a_backward_runs_again_is_no_forward():
    again = step(1, in_node=[ran_region(3)])
    analysis = Analysis(make_log(module(1, "net"), *again, *step(2)))
    assert [run.node_id for run in region_times(analysis)] == [1, 2]
    assert len(spans_of(analysis, "forward")) == 2
