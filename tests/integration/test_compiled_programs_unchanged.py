"""Recording changes nothing of programs that compile, and records nothing that only traces.

The programs run in processes of their own, which print all that a recording could change: results,
gradients, errors, warnings, graphs, guards, recompiles, counters of caches.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import compare_compiled_programs
import compiled_programs
import pytest
import torch
from interpreters import run_forked
from torch.autograd import graph
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.events import (
    BackwardStarted,
    HooksEntered,
    ModuleEntered,
    NodeSeen,
    OpCalled,
    RecorderFailed,
    RegionEntered,
    TensorSaved,
)

RUNNER = Path(__file__).with_name("run_compiled_programs.py")
FAST = (
    "checkpointed_inside,selective_checkpoint,graph_breaks,counts_its_calls,inlined_hooks,"
    "hooks_inside,hooks_disabled_inside,custom_function,mutated_input,backward_inside,"
    "compiled_optimizer,compiled_autograd"
)
OTHERS = ",".join(name for name in compiled_programs.PROGRAMS if name not in FAST.split(","))
BACKENDS = (
    "network,checkpointed_inside,selective_checkpoint,graph_breaks,inlined_hooks,python_hooks,"
    "custom_function,written_through_a_view,dropout,retained_graph"
)
INDUCTOR = (
    "network,selective_checkpoint,graph_breaks,inlined_hooks,python_hooks,dropout,compiled_autograd"
)
ENGINES = compare_compiled_programs.ENGINES


def run(built, *arguments):
    """Run programs without a recording and with each engine; return what they did."""
    environment = {**os.environ, "AUTOGRADVIZ_CACHE": str(built)}
    engines = ",".join(("none", *ENGINES))
    finished = run_forked(RUNNER, engines, *arguments, env=environment, timeout=None)
    assert finished.returncode == 0, finished.stderr[-3_000:]
    return json.loads(finished.stdout.splitlines()[-1])


def check(built, *arguments, states=("",)):
    """Check that programs do the same in a recorded process and in another one."""
    runs = run(built, *arguments)
    assert compare_compiled_programs.differences(runs, states) == []
    return runs


@pytest.mark.parametrize("aspect", ["result", "error", "warnings", "guards", "cache keys"])
def test_any_other_value_in_a_recorded_run_is_a_difference(aspect):
    names = ("result", "error", "warnings", "guards", "cache keys")
    step = dict.fromkeys(names)
    plain = {"programs": {"views eager during": [step, step, []]}, "remains": []}
    other = {"programs": {"views eager during": [step, step | {aspect: "x"}, []]}, "remains": []}
    runs = {"none": plain, "python": plain, "native": plain}
    assert compare_compiled_programs.differences(runs) == []
    found = compare_compiled_programs.differences(runs | {"native": other})
    assert f"native , views eager during: {aspect} of step 1: x instead of None" in found
    remaining = {"native": plain | {"remains": ["torch.cos"]}}
    found = compare_compiled_programs.differences(runs | remaining)
    assert found == ["native: torch.cos remains"]


@pytest.mark.ci(reason="compiles all programs")
def test_recording_changes_no_compiled_program(built):
    check(built, "aot_eager", "during", FAST)


@pytest.mark.slow(reason="compiles the other programs; `make test` compiles some")
def test_recording_changes_no_other_compiled_program(built):
    check(built, "aot_eager", "during", OTHERS)


@pytest.mark.ci(reason="compiles all programs")
def test_recording_changes_no_program_that_was_compiled_before(built):
    check(built, "aot_eager", "before", FAST)


@pytest.mark.slow(reason="compiles many programs")
def test_recording_changes_no_program_of_other_backends(built):
    check(built, "eager,aot_eager_decomp_partition", "during", BACKENDS)


@pytest.mark.slow(reason="compiles C++")
def test_recording_changes_no_inductor_program(built, tmp_path):
    states = ("cold", "warm")
    runs = check(built, "inductor", "during", INDUCTOR, ",".join(states), tmp_path, states=states)
    for engine in ("none", *ENGINES):
        cold, warm = (
            runs[f"{engine} {state}"]["programs"]["network inductor during"][0]["counters"]
            for state in states
        )
        assert cold["aot_autograd"]["autograd_cache_miss"] == 1
        assert cold["inductor"]["fxgraph_cache_miss"] > 0
        assert warm["aot_autograd"]["autograd_cache_hit"] == 1


@pytest.mark.slow(reason="imports Dynamo again")
@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_remains_if_dynamo_is_imported_while_recording(engine, built):
    script = f"""
import sys
import torch, autogradviz
assert "torch._dynamo" not in sys.modules
with autogradviz.record(engine="{engine}"):
    torch.compile(torch.nn.Linear(2, 2), backend="aot_eager")(torch.ones(2, 2)).sum().backward()
sys.path.insert(0, {str(RUNNER.parent)!r})
from run_compiled_programs import remains
assert remains() == [], remains()
assert torch._dynamo.utils.unpatched_nn_module_call is torch.nn.Module.__call__
"""
    environment = {**os.environ, "AUTOGRADVIZ_CACHE": str(built)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)


# --- what is recorded ---------------------------------------------------------------------------

DEFINITIONS = {
    "FrameSeen",
    "ParameterSeen",
    "RecordingEnded",
    "RecordingStarted",
    "SourceLineRead",
    "StackSeen",
}
"""Events that depend on the length of a recording only; durations are no part of the others."""


COMPILING = {
    "CacheDecided",
    "CompileEnded",
    "CompileStarted",
    "CompiledGraphCaptured",
    "HookInlined",
    "OpCompiled",
    "RecomputePlanned",
    "RegionCompiled",
    "SlotPlanned",
}
"""Events about a compilation, not about what runs."""


def events_of(step, engine, monkeypatch, built):
    """Return the numbers of events by kind, of calls by operator, of nodes by type."""
    monkeypatch.setenv("AUTOGRADVIZ_CACHE", str(built))
    with autogradviz.record(engine=engine) as trace:
        step()
    assert trace.log.of(RecorderFailed) == ()
    kinds = Counter(type(event).__name__ for event in trace.log)
    for name in DEFINITIONS | COMPILING:
        kinds.pop(name, None)
    nodes = Counter(event.node_name for event in trace.log.of(NodeSeen))
    return kinds, Counter(event.op for event in trace.log.of(OpCalled)), nodes


@pytest.mark.one_in(4, reason="compiles each program", in_ci=2)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("eager", marks=pytest.mark.slow(reason="the other backend shows most")),
        "aot_eager",
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        "network",
        "checkpointed_inside",
        "checkpoint_around_compiled",
        "selective_checkpoint",
        "graph_breaks",
        pytest.param("custom_function", marks=pytest.mark.slow(reason="others show most")),
        "inlined_hooks",
        "python_hooks",
        pytest.param("dropout", marks=pytest.mark.slow(reason="others show most")),
        pytest.param("views", marks=pytest.mark.slow(reason="others show most")),
        pytest.param("autocast", marks=pytest.mark.slow(reason="others show most")),
        "function_transforms",
        "retained_graph",
        "compiled_autograd",
    ],
)
def test_compiling_records_what_running_records(name, backend, engine, monkeypatch, built):
    found = []
    for compiled_before in (False, True):
        torch._dynamo.reset()
        torch.manual_seed(0)  # a program may branch on its results
        step = compiled_programs.PROGRAMS[name](partial(torch.compile, backend=backend))
        # PyTorch runs other operators at the first call, to check custom operators.
        with torch._functorch.config.patch(check_custom_op_aliasing=False):
            if compiled_before:
                torch.manual_seed(0)
                step()
            torch.manual_seed(0)
            found.append(events_of(step, engine, monkeypatch, built))
    assert found[0] == found[1]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("pre_dispatch", [False, True])
def test_nothing_is_recorded_while_make_fx_traces(engine, pre_dispatch, monkeypatch, built):
    net = compiled_programs.mlp()

    def penalty(x):
        loss = checkpoint(net, x, use_reentrant=False).sum()
        return torch.autograd.grad(loss, net[0].weight)

    def trace_it():
        make_fx(penalty, pre_dispatch=pre_dispatch)(torch.ones(2, 4))

    kinds, _, _ = events_of(trace_it, engine, monkeypatch, built)
    ran = {BackwardStarted, ModuleEntered, NodeSeen, RegionEntered, TensorSaved}
    assert not kinds.keys() & {kind.__name__ for kind in ran}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("strict", [False, True])
def test_nothing_is_recorded_while_a_model_is_exported(engine, strict, monkeypatch, built):
    net, x = compiled_programs.mlp(), torch.ones(2, 4)

    def export():
        torch.export.export(net, (x,), strict=strict)

    kinds, ops, nodes = events_of(export, engine, monkeypatch, built)
    assert (ops, nodes) == ({}, {})
    assert kinds.keys() <= {"ModeChanged"}


@pytest.mark.parametrize("engine", ENGINES)
def test_tracing_without_dynamo_records_one_backward(engine, monkeypatch, built):
    step = compiled_programs.PROGRAMS["aot_alone"](None)
    kinds, _, nodes = events_of(step, engine, monkeypatch, built)
    assert kinds["BackwardStarted"] == 1
    assert nodes["CompiledFunctionBackward"] == 1
    assert nodes.keys() <= {"CompiledFunctionBackward", "SumBackward0", "AccumulateGrad"}


@pytest.mark.parametrize("engine", ENGINES)
def test_hooks_that_are_graph_modules_are_recorded_in_eager_code(engine, monkeypatch, built):
    monkeypatch.setenv("AUTOGRADVIZ_CACHE", str(built))
    pair = compiled_programs.graph_modules(torch.bfloat16)
    call = torch.compile(torch.sin, backend="aot_eager")
    x = torch.ones(2, requires_grad=True)
    with autogradviz.record(engine=engine) as trace, graph.saved_tensors_hooks(*pair):
        assert torch._C._autograd._top_saved_tensors_default_hooks(True) == pair
        (call(x) * torch.cos(x)).sum().backward()
    assert [event.packed_by for event in trace.log.of(HooksEntered)] == ["user"]
    packed = Counter(event.packed_by for event in trace.log.of(TensorSaved))
    assert packed["user"] == 3  # both factors and the argument of cos
    (inlined,) = [event for event in trace.log.of(TensorSaved) if event.packed_by != "user"]
    assert inlined.slot == "saved_tensors[0]"
