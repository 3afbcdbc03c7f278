"""Compiled regions are recorded: slots, recomputed ops, hooks, graph breaks, recompiles."""

from __future__ import annotations

import gc
import json
import os
import sys
from functools import partial
from pathlib import Path

import compiled_programs
import pytest
import torch
import torch.nn.functional as F
from interpreters import run_forked
from torch import nn
from torch.autograd import graph
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import autogradviz
from autogradviz.analysis.compiled_region_times import region_times
from autogradviz.events import BackwardCaptured, RecorderFailed, RecorderLimited, RegionRan

pytestmark = pytest.mark.one_in(2, reason="compiles each program", in_ci=1)

ENGINES = ("python", "native")
INDUCTOR = pytest.param("inductor", marks=pytest.mark.slow(reason="compiles C++"))
DECOMPOSED = pytest.param(
    "aot_eager_decomp_partition", marks=pytest.mark.slow(reason="aot_eager shows most")
)
BACKENDS = ("aot_eager", DECOMPOSED, INDUCTOR)


@pytest.fixture(autouse=True)
def fresh(monkeypatch, built, tmp_path):
    """Forget what was compiled, and start with an empty cache."""
    monkeypatch.setenv("AUTOGRADVIZ_CACHE", str(built))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    torch._dynamo.reset()
    torch.manual_seed(0)


class Block(nn.Module):
    """A small network whose MLP is checkpointed."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def mlp(self, x):
        return self.down(F.gelu(self.up(x)))

    def forward(self, x):
        return x + checkpoint(self.mlp, self.norm(x), use_reentrant=False)


def record(step, engine="native"):
    """Record a step; return its trace."""
    with autogradviz.record(engine=engine) as trace:
        step()
    assert trace.log.of(RecorderFailed) == ()
    return trace


def training(function, *shape):
    """Return a step that calls a function with a random input and runs a backward."""

    def step():
        function(torch.randn(*shape, requires_grad=True)).sum().backward()

    return step


def line_of(text):
    """Return the number of the first line of this file that contains a text."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def held_by(node):
    """Return the bytes of the tensors that a node holds."""
    saved = [slot.data for slot in node._raw_saved_tensors]
    return sum(tensor.nbytes for tensor in [*saved, *node._tensors_no_vc_check])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_saved_slots_add_up_to_what_the_node_holds(backend, engine):
    call, held = torch.compile(Block(), backend=backend), []

    def step():
        y = call(torch.randn(3, 8, requires_grad=True))
        held.append(held_by(y.grad_fn))
        y.sum().backward()

    trace = record(lambda: (step(), step()), engine)
    (region,) = trace.compiled_regions()
    assert (region.name, region.backend, region.source) == ("forward [0/0]", backend, "objects")
    assert region.missing == ()
    assert [run.nbytes for run in region.runs] == held
    for number, nbytes in enumerate(held):
        assert sum(slot.runs[number].nbytes for slot in region.saved) == nbytes
    assert region.saved_nbytes == held[0]
    assert {run.node_id for run in region.runs} <= trace.analysis.graph.nodes.keys()
    kinds = {slot.kind for slot in region.saved}
    assert kinds == {"value", "input"}


class Short(nn.Module):
    """A block whose methods call it by another name."""

    def __init__(s):
        super().__init__()
        s.norm, s.up = nn.LayerNorm(8), nn.Linear(8, 16)

    def forward(s, x):
        return torch.tanh(s.up(s.norm(x)))


def test_modules_are_named_alike_whatever_the_methods_call_the_module():
    compiled = torch.compile(Short(), backend="aot_eager")
    trace = record(training(compiled, 3, 8))
    (region,) = trace.compiled_regions()
    assert {op.module for op in region.forward_ops} == {"", "norm", "up"}
    assert {slot.source for slot in region.saved} >= {"norm.weight", "up.weight"}


def times_two(s, x):
    return s(x) * 2


def test_a_module_that_a_function_gets_keeps_its_name():
    block = Short()
    compiled = torch.compile(times_two, backend="aot_eager")
    trace = record(lambda: compiled(block, torch.randn(3, 8)).sum().backward())
    (region,) = trace.compiled_regions()
    assert {op.module for op in region.forward_ops} == {"", "s", "s.norm", "s.up"}


def test_a_region_has_the_line_of_its_times():
    trace = record(training(torch.compile(Short(), backend="aot_eager"), 3, 8))
    scene = trace._viewer_scene
    [region] = scene.compiled_regions
    [step] = scene.compiled_steps
    line = line_of("def forward(s, x):")
    assert (region.lineno, step.lineno, scene.nodes[region.nodes[0]].lineno) == (line,) * 3


def test_what_a_run_saves_is_held_from_that_run_on():
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
    compiled = torch.compile(model, backend="aot_eager")
    with autogradviz.record(model) as trace:
        for _ in range(2):
            compiled(torch.rand(4, 8)).sum().backward()
    runs = trace.analysis.log.of(RegionRan)
    of_node = {each.node_id: each for each in runs}
    saved = [each for each in trace.analysis.saved.values() if each.node_id in of_node]
    assert len(runs) == 2
    assert len(saved) > 4
    for each in saved:
        run = of_node[each.node_id]
        assert (each.saved_seq, each.saved_ns) == (run.seq, run.time_ns)
    starts = {hold.start_ns for hold in trace.analysis.memory.holds}
    assert starts == {run.time_ns for run in runs}


def test_the_times_of_a_fold_have_no_compilation():
    trace = record(training(torch.compile(Block(), backend="aot_eager"), 3, 8))
    compiling = [s for s in trace.analysis.timeline.spans if s.kind == "compile" and not s.depth]
    (fold,) = trace._scene.folds
    whole = fold.end_ns - fold.turn_ns
    inside = sum(s.end_ns - s.start_ns for s in compiling if s.start_ns > fold.turn_ns)
    assert inside > 0
    assert fold.backward_ns <= whole - inside


@pytest.mark.parametrize("backend", BACKENDS)
def test_slots_and_ops_have_lines_modules_and_reasons(backend):
    trace = record(training(torch.compile(Block(), backend=backend), 3, 8))
    (region,) = trace.compiled_regions()
    line = line_of("return x + checkpoint(self.mlp")
    assert region.location.lineno == line
    inputs = {slot.source: slot for slot in region.saved if slot.kind == "input"}
    assert {"x", "norm.weight", "up.weight", "down.weight"} <= inputs.keys()
    assert inputs["up.weight"].nbytes == 16 * 8 * 4
    assert inputs["x"].reason.startswith("needed by ")
    blocked = [slot for slot in region.saved if slot.blocking_op is not None]
    assert blocked
    for slot in blocked:
        assert slot.op is not None
        assert slot.blocked_because in slot.reason
        assert slot.location.lineno == line
    assert {op.module for op in region.forward_ops} >= {"norm", "up", "down"}
    matmuls = [op for op in region.backward_ops if "mm" in op.target and op.cause is None]
    assert matmuls
    for op in matmuls:
        assert "mm" in op.forward_op.target
        assert op.location == op.forward_op.location


class Attention(nn.Module):
    """A layer with the usual ops of a transformer."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        y = self.norm(x)
        scores = (y @ y.transpose(-2, -1)).softmax(-1)
        return self.down(F.gelu(self.up(scores @ y)))


def test_saved_values_are_named_by_what_eager_code_saves_them_for():
    compiled = torch.compile(Attention(), backend="aot_eager")
    with autogradviz.record(compiled) as trace:
        compiled(torch.rand(2, 4, 8)).sum().backward()
    ribbons = trace._scene.ribbons
    kinds = {ribbon.kind for ribbon in ribbons}
    assert {"activation", "attention", "norm", "linear", "product"} <= kinds
    labels = {ribbon.label for ribbon in ribbons}
    expected = {"GELU input", "GELU output", "softmax result", "norm input", "mean"}
    assert expected | {"reciprocal of std", "linear input"} <= labels
    assert expected <= {storage.name for storage in trace._scene.storages}
    assert not any("GraphModule" in storage.name for storage in trace._scene.storages)
    # One op and one node ran all of the region: its values are saved, and read, at one moment.
    within = [ribbon for ribbon in ribbons if ribbon.block]
    assert len({ribbon.saved_ns for ribbon in within}) == 1
    assert len({ribbon.read_ns for ribbon in within}) == 1
    for times in zip(*((each.forward_ns, each.backward_ns) for each in within), strict=True):
        assert min(times) > 0
        assert max(times) - min(times) <= 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_nearly_all_backward_ops_have_a_line_of_the_user(backend):
    trace = record(training(torch.compile(Block(), backend=backend), 3, 8))
    (region,) = trace.compiled_regions()
    ops = [op for op in region.backward_ops if op.cause is None]
    located = [op for op in ops if op.location is not None and not op.library]
    assert len(located) >= 0.95 * len(ops)
    assert all(op.location is not None or op.module for op in ops)


def test_double_backward_is_no_run_of_the_region():
    call = torch.compile(lambda x: x.sin().sum(), backend="aot_eager")
    x = torch.ones(3, requires_grad=True)

    def step():
        (grad,) = torch.autograd.grad(call(x), x, create_graph=True)
        with pytest.raises(RuntimeError, match="double backward"):
            grad.sum().backward()

    (region,) = record(step).compiled_regions()
    assert [run.nbytes for run in region.runs] == [12]


@pytest.mark.parametrize("backend", BACKENDS)
def test_recomputed_ops_have_a_cause(backend):
    trace = record(training(torch.compile(Block(), backend=backend), 3, 8))
    (region,) = trace.compiled_regions()
    inside = line_of("return self.down(F.gelu")
    causes = {op.cause for op in region.recomputed}
    assert "checkpoint" in causes
    assert causes <= {"checkpoint", "partitioner"}
    for op in region.recomputed:
        if op.cause == "checkpoint":
            assert op.location.lineno == inside
            assert op.forward_op.target == op.target
            assert op.checkpoint is not None
    assert set(region.recomputed) <= set(region.backward_ops)


def save_matmuls(_ctx, op, *_args, **_kwargs):
    saved = op is torch.ops.aten.addmm.default
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


@pytest.mark.parametrize("backend", BACKENDS)
def test_decisions_of_a_selective_policy_are_causes(backend):
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4), nn.Tanh())
    contexts = partial(create_selective_checkpoint_contexts, save_matmuls)

    def run(x):
        return checkpoint(net, x, use_reentrant=False, context_fn=contexts)

    trace = record(training(torch.compile(run, backend=backend), 3, 4))
    (region,) = trace.compiled_regions()
    saved = [slot for slot in region.saved if slot.kind == "value"]
    assert [slot.op.target for slot in saved] == ["aten.addmm.default"] * 2
    assert all("your policy says MUST_SAVE" in slot.reason for slot in saved)
    assert {op.cause for op in region.recomputed} == {"policy"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_inlined_hooks_have_the_bytes_before_and_after(backend):
    net = nn.Linear(8, 8)
    call = torch.compile(lambda x: torch.sin(net(x)), backend=backend)
    pair = compiled_programs.graph_modules(torch.bfloat16)

    def step():
        with graph.saved_tensors_hooks(*pair):
            training(call, 4, 8)()

    trace = record(step)
    (region,) = trace.compiled_regions()
    (hook,) = [hook for hook in region.hooks if hook.inlined]
    assert (hook.nbytes_before, hook.nbytes_after) == (4 * 8 * 4, 4 * 8 * 2)
    assert len(hook.pack) == len(hook.unpack) == 1
    left_out = {hook.slot: hook for hook in region.hooks if not hook.inlined}
    assert left_out
    assert all(
        each.reason and each.nbytes_before == each.nbytes_after for each in left_out.values()
    )
    (slot,) = [slot for slot in region.saved if slot.name.startswith(f"{hook.slot}_hook")]
    assert (slot.dtype, slot.nbytes) == ("bfloat16", hook.nbytes_after)
    assert slot.runs[0].nbytes == hook.nbytes_after


def test_graph_break_has_its_reason_and_line():
    net = nn.Linear(4, 4)

    def broken(x):
        y = net(x)
        sys.stdout.write("")  # the graph ends here
        return y.sin()

    trace = record(training(torch.compile(broken, backend="aot_eager"), 3, 4))
    first, second = trace.compiled_regions()
    (found,) = first.graph_breaks
    assert found.reason == found.details.splitlines()[0] != ""
    assert found.location.lineno == line_of("# the graph ends here")
    assert (first.name, second.graph_breaks) == ("broken [0/0]", ())
    assert second.name.startswith("broken from line ")
    assert trace.analysis.graph_breaks == (found,)


def test_break_before_the_first_op_is_recorded():
    def broken(x):
        sys.stdout.write("")  # nothing was captured yet
        return x.sin()

    trace = record(training(torch.compile(broken, backend="aot_eager"), 3))
    (found,) = trace.analysis.graph_breaks
    assert found.location.lineno == line_of("# nothing was captured yet")
    assert len(trace.compiled_regions()) == 1


def test_recompile_names_the_guard_and_its_line():
    net = nn.Linear(4, 4)
    call = torch.compile(lambda x, text: net(x) * len(text), backend="aot_eager")
    limit = torch._dynamo.config.patch(recompile_limit=2)

    def step():
        for text in ("a", "bb", "ccc"):
            call(torch.randn(2, 4), text).sum().backward()

    with limit:
        trace = record(step)
    first, second = trace.compiled_regions()
    assert first.recompiles == ()
    (found,) = second.recompiles
    assert (found.compile_id, found.failed_compile_id, found.count) == ("0/1", "0/0", 1)
    assert found.guard == "text == 'a'"
    assert found.location.lineno == line_of("net(x) * len(text)")
    _, given_up = trace.analysis.recompiles
    assert (given_up.guard, given_up.count, given_up.limit) == ("text == 'bb'", 2, 2)
    assert given_up.function == found.function == "<lambda>"


@pytest.mark.parametrize("backend", ["aot_eager", INDUCTOR])
def test_dynamic_shapes_have_hints_and_sizes(backend):
    net = nn.Linear(4, 4)
    call, held = torch.compile(lambda x: net(x).sin(), backend=backend, dynamic=True), []

    def step():
        for batch in (3, 5):
            y = call(torch.randn(batch, 4, requires_grad=True))
            held.append(held_by(y.grad_fn))
            y.sum().backward()

    trace = record(step)
    (region,) = trace.compiled_regions()
    symbolic = [slot for slot in region.saved if slot.symbolic_shape and slot.kind != "size"]
    assert symbolic
    assert all(slot.shape[0] == 3 for slot in symbolic)
    sums = [sum(slot.runs[run].nbytes for slot in region.saved) for run in (0, 1)]
    assert sums == held
    assert held[1] > held[0]


def test_inference_has_forward_ops_only():
    call = torch.compile(nn.Linear(4, 4), backend="aot_eager")

    def step():
        with torch.no_grad():
            call(torch.randn(2, 4))

    (region,) = record(step).compiled_regions()
    assert not region.differentiable
    assert [op.target for op in region.forward_ops] == ["aten.t.default", "aten.addmm.default"]
    assert (region.backward_ops, region.saved) == ((), ())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("backend", ["aot_eager", INDUCTOR])
def test_region_compiled_before_is_found(backend, engine):
    call, held = torch.compile(Block(), backend=backend), []
    training(call, 3, 8)()
    early = call(torch.randn(3, 8, requires_grad=True))

    def step():
        early.sum().backward()
        y = call(torch.randn(3, 8, requires_grad=True))
        held.append(held_by(y.grad_fn))
        y.sum().backward()

    (region,) = record(step, engine).compiled_regions()
    assert (region.source, region.backend, region.compile_id) == ("found", backend, "0/0")
    assert "reasons" in region.missing
    assert [(run.early, run.nbytes) for run in region.runs] == [
        (True, held[0]),
        (False, held[0]),
    ]
    assert region.saved_nbytes == held[0]
    assert {op.cause for op in region.recomputed} >= {"checkpoint"}
    inside = line_of("return self.down(F.gelu")
    assert {op.location.lineno for op in region.recomputed if op.cause == "checkpoint"} == {inside}


def test_region_of_a_tensor_class_compiled_before_is_found_after_another_compiled_class_was_freed():
    class Scale:
        def __call__(self, x):
            return x * 2

    @torch.compile(backend="eager")
    def apply(layer, x):
        return layer(x)

    apply(Scale(), torch.ones(2))
    del Scale
    gc.collect()  # Dynamo invalidates the compilation: its guards name the class
    double = torch.compile(lambda x: x.sin() * 2, backend="aot_eager")

    def step():
        leaf = TwoTensor(torch.ones(2), torch.ones(2)).requires_grad_()
        double(leaf).sum().backward()

    step()
    assert [region.source for region in record(step).compiled_regions()] == ["found"]


WARM = """
import sys, json
sys.path[:0] = {folders!r}
import torch, autogradviz
from test_compiled_regions import Block, training
torch.manual_seed(0)
step = training(torch.compile(Block(), backend="inductor"), 3, 8)
if {before}:
    step()
with autogradviz.record() as trace:
    step()
(region,) = trace.compiled_regions()
facts = [
    region.source, region.cache, region.missing,
    [(s.name, s.kind, s.nbytes, s.runs[0].nbytes) for s in region.saved],
    [(op.name, op.cause, op.target, op.location.lineno) for op in region.recomputed],
    [(op.name, op.target, op.shape) for op in region.backward_ops],
]
print(json.dumps(facts))
"""


@pytest.mark.slow(reason="three processes that compile C++")
def test_cached_regions_are_read_from_text(tmp_path, built):
    environment = {
        **os.environ,
        "AUTOGRADVIZ_CACHE": str(built),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
    }

    def run(*, before=False):
        folders = [str(folder) for folder in Path(__file__).parents[:2]]
        script = WARM.format(folders=folders, before=before)
        finished = run_forked("-c", script, env=environment, timeout=None)
        assert finished.returncode == 0, finished.stderr[-3_000:]
        return json.loads(finished.stdout.splitlines()[-1])

    cold, warm, found = run(), run(), run(before=True)
    assert [each[0] for each in (cold, warm, found)] == ["objects", "cache", "found"]
    assert [each[1] for each in (cold, warm, found)] == ["miss", "hit", None]
    assert cold[3:] == warm[3:] == found[3:]
    assert cold[2] == []
    assert "reasons" in warm[2]


def test_backward_of_compiled_autograd_joins_its_regions():
    call = torch.compile(lambda x: x.sin() * x, backend="aot_eager")

    def step():
        loss = call(torch.randn(3, requires_grad=True)).sum()
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="aot_eager")):
            loss.backward()

    trace = record(step)
    (captured,) = trace.log.of(BackwardCaptured)
    region = trace.compiled_regions()[0]
    names = {f"aot{region.aot_number}_{op.name}" for op in region.backward_ops}
    assert names <= set(captured.op_names)


def test_missing_name_is_reported(monkeypatch):
    from autogradviz.recorder.torch_internals import names_in_compilers as compilers

    missing = compilers.REGION_RUN._replace(path="_AutogradSavedState.not_there")
    monkeypatch.setattr(compilers, "REGION_RUN", missing)
    trace = record(training(torch.compile(Block(), backend="aot_eager"), 3, 8))
    messages = [event.message for event in trace.log.of(RecorderLimited)]
    assert any("not_there" in message for message in messages)
    (region,) = trace.compiled_regions()
    (run,) = region.runs  # found when the graph was walked
    assert run.early
    assert run.nbytes == region.saved_nbytes


def test_regions_survive_saving_filtering_and_redaction(tmp_path):
    trace = record(training(torch.compile(Block(), backend="aot_eager"), 3, 8))
    trace.save(tmp_path / "x.agv")
    loaded = autogradviz.load(tmp_path / "x.agv")
    assert loaded.compiled_regions() == trace.compiled_regions()
    (region,) = trace.redacted().compiled_regions()
    assert {op.location.text for op in region.forward_ops} == {""}
    assert all("/" not in op.location.filename for op in region.forward_ops)
    assert len(trace.to_pandas()["SlotPlanned"]) == len(region.saved)


def test_long_recordings_keep_the_regions_of_dropped_steps():
    call = torch.compile(Block(), backend="aot_eager")
    step = training(call, 3, 8)
    with autogradviz.record(keep_steps=1) as trace:
        for _ in range(4):
            step()
    (region,) = trace.compiled_regions()
    assert len(region.runs) < 4
    assert {run.nbytes for run in region.runs} == {region.saved_nbytes}
    assert region.forward_ops


def test_the_forward_of_a_compiled_region_is_one_part_of_the_fold():
    """An op that is recorded inside a region belongs to it: the region began before the op."""

    class Dropping(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

        def forward(self, x):
            return self.down(F.dropout(self.up(x).tanh(), 0.5))

    model = Dropping()
    compiled = torch.compile(model, backend="aot_eager")
    with autogradviz.record(model) as trace:
        compiled(torch.rand(4, 8)).sum().backward()
    scene = trace._viewer_scene
    (run,) = region_times(trace.analysis)
    inside = [op for op in trace.analysis.ops if run.start_ns <= op.time_ns < run.end_ns]
    assert "native_dropout" in {op.name for op in inside}
    bars = [bar for bar in scene.fold_bars if bar.edge == "forward" and bar.kind == "region"]
    assert [bar.ns for bar in bars] == [run.own_ns + sum(op.duration_ns for op in inside)]
