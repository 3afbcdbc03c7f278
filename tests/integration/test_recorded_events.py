"""The events of small PyTorch programs."""

import contextlib
import io
import runpy
import sys
import traceback
import weakref
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from programs import Block
from torch import nn
from torch.autograd.graph import (
    allow_mutation_on_saved_tensors,
    increment_version,
    save_on_cpu,
    saved_tensors_hooks,
)
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import autogradviz
from autogradviz.events import (
    BackwardStarted,
    FrameSeen,
    GradAccumulated,
    ModuleEntered,
    ModuleSeen,
    MutationCloned,
    NodeFinished,
    NodeSeen,
    NodeStarted,
    OpCalled,
    ParameterSeen,
    RecomputeStopped,
    RecorderFailed,
    RegionEntered,
    StackSeen,
    TensorReleased,
    TensorSaved,
    TensorSeen,
    TensorUnpacked,
    VersionBumped,
)


def line_of(text):
    """Return the number of the only line of this file that ends with a mark."""
    with open(__file__, encoding="utf-8") as lines:
        found = [n for n, line in enumerate(lines, 1) if line.rstrip().endswith(f"# <{text}>")]
    (number,) = found
    return number


def names(trace, phase):
    return [op.name for op in trace.analysis.ops if op.phase == phase]


@pytest.mark.python_engine(reason="fewer detach calls")
def test_ops_have_phase_line_and_node():
    a = torch.rand(3, requires_grad=True)
    with autogradviz.record() as trace:
        b = a.exp()  # <exp>
        b.sum().backward()
    (exp,) = [op for op in trace.analysis.ops if op.name == "exp"]
    assert (exp.phase, exp.location.filename, exp.location.lineno) == (
        "forward",
        __file__,
        line_of("exp"),
    )
    node = trace.analysis.graph.nodes[exp.node_id]
    assert (node.name, node.op, node.state, node.runs) == ("ExpBackward0", exp, "ran", 1)
    assert names(trace, "backward") == ["expand", "detach", "mul", "detach"]
    assert {trace.analysis.graph.nodes[op.backward_node_id].name for op in trace.analysis.ops
            if op.name == "expand"} == {"SumBackward0"}  # fmt: skip


def test_op_inputs_are_recorded_for_all_kinds_of_arguments():
    a = torch.rand(3)
    with autogradviz.record() as trace:
        torch.ops.aten.exp.default(self=a)
        torch.cat([a, a])
        torch.mul(a, 2)
    assert trace.log.of(RecorderFailed) == ()
    taken = {op.op: (op.inputs, op.input_versions) for op in trace.log.of(OpCalled)}
    assert taken == {
        "aten.exp.default": ((0,), (0,)),
        "aten.cat.default": ((0, 0), (0, 0)),
        "aten.mul.Tensor": ((0,), (0,)),
    }


def test_subclass_with_torch_function_is_called_only_for_user_calls():
    seen = []

    class Logged(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    a, b = torch.rand(3), torch.rand(3).as_subclass(Logged)
    with autogradviz.record() as trace:
        torch.atan2(a, b)
        torch.sin(b)
    assert seen == ["atan2", "sin"]
    assert [op.inputs for op in trace.log.of(OpCalled) if op.op != "aten.alias.default"] == [
        (0, 1),
        (1,),
    ]


def test_edges_equal_the_next_functions():
    a, b = torch.rand(3, requires_grad=True), torch.rand(3, requires_grad=True)
    with autogradviz.record() as trace:
        loss = (a * b + 1).sum()
        loss.backward()
    graph = trace.analysis.graph
    name = {node_id: node.name for node_id, node in graph.nodes.items()}
    assert [(name[e.source], name[e.target]) for e in graph.edges] == [
        ("SumBackward0", "AddBackward0"),
        ("AddBackward0", "MulBackward0"),
        ("MulBackward0", "AccumulateGrad"),
        ("MulBackward0", "AccumulateGrad"),
    ]
    assert [name[root] for root in graph.roots] == ["SumBackward0"]


def test_tensor_saved_twice_is_two_saves_of_one_storage():
    a = torch.rand(3, requires_grad=True)
    with autogradviz.record() as trace:
        (a * a).sum().backward()
    saved = trace.saved_tensors()
    assert [(s.slot, s.version, s.packed_by, s.tensor.nbytes) for s in saved] == [
        ("other", 0, "pytorch", 12),
        ("self", 0, "pytorch", 12),
    ]
    assert len({s.tensor.storage_id for s in saved}) == 1
    assert len(trace.log.of(TensorUnpacked)) == len(trace.log.of(TensorReleased)) == 2


def test_saved_version_is_the_version_at_the_save():
    a = torch.rand(3, requires_grad=True)
    with autogradviz.record() as trace:
        b = a + 1
        b.mul_(2)
        c = b.exp()
        b.add_(1)  # allowed, because exp saved its result
        d = b.sin()
        (c.sum() + d.sum()).backward()
    saved = {s.op.name: s.version for s in trace.saved_tensors() if s.op is not None}
    assert saved == {"mul_": 0, "exp": 0, "sin": 2}


def test_version_bumps_have_op_line_and_storage():
    a = torch.zeros(4)
    with autogradviz.record() as trace:
        a[1:3].add_(1)  # <add>
        increment_version(a)  # <increment>
        torch.exp(a, out=a)
        a.detach().mul_(2)
    bumps = trace.log.of(VersionBumped)
    assert [(b.op, b.version, b.seen_version) for b in bumps] == [
        ("aten.add_.Tensor", 0, 1),
        ("increment_version", 1, 2),
        ("aten.exp.out", 2, 3),
        ("aten.mul_.Tensor", 3, 4),
    ]
    assert len({b.storage_id for b in bumps}) == 1
    lines = [trace.analysis.location(b.stack_id).lineno for b in bumps[:2]]
    assert lines == [line_of("add"), line_of("increment")]


def test_unobserved_write_is_recorded_at_the_next_read():
    a = torch.zeros(4)
    with autogradviz.record() as trace:
        a.add_(1)
        torch._C._autograd._unsafe_set_version_counter((a,), (7,))
        a.sin()
    assert [(b.op, b.version, b.seen_version) for b in trace.log.of(VersionBumped)] == [
        ("aten.add_.Tensor", 0, 1),
        ("", 1, 7),
    ]


def test_fused_optimizers_write_without_a_version_bump():
    w = nn.Parameter(torch.rand(3))
    w.grad = torch.ones(3)
    with autogradviz.record() as trace:
        torch.optim.SGD([w], lr=0.1, fused=True).step()
    (step,) = [op for op in trace.log.of(OpCalled) if "fused" in op.op]
    assert len(step.written) == 2  # parameter and gradient, by the operator's schema
    assert trace.log.of(VersionBumped) == ()


def test_ops_nodes_and_parameters_have_module_names():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    with autogradviz.record(net) as trace:
        net(torch.rand(2, 3)).sum().backward()
    nodes = sorted(trace.analysis.graph.nodes.values(), key=lambda n: n.order)
    assert [(n.name, n.module) for n in nodes if n.parameter is None] == [
        ("TBackward0", "0"),
        ("AddmmBackward0", "0"),
        ("ReluBackward0", "1"),
        ("TBackward0", "2"),
        ("AddmmBackward0", "2"),
        ("SumBackward0", ""),
    ]
    leaves = {n.parameter.name for n in nodes if n.parameter is not None}
    assert leaves == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert len(trace.log.of(GradAccumulated)) == 4


HAS_POSITIONS = sys.version_info >= (3, 11)  # of calls, in code objects
NET = "net" if HAS_POSITIONS else "Sequential"


def test_outermost_module_gives_names_without_a_model():
    net = nn.Sequential(nn.Linear(3, 1))
    with autogradviz.record() as trace:
        net(torch.rand(2, 3)).sum().backward()
    assert {m.name for m in trace.analysis.modules.values()} == {NET, f"{NET}.0"}
    assert {p.parameter_name for p in trace.log.of(ParameterSeen)} == {
        f"{NET}.0.weight",
        f"{NET}.0.bias",
    }


def test_two_models_of_one_class_have_different_names():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    with autogradviz.record() as trace:
        second(first(torch.rand(1, 2))).sum().backward()
    assert {m.name for m in trace.analysis.modules.values()} == (
        {"first", "second"} if HAS_POSITIONS else {"Linear", "Linear#2"}
    )


def test_module_that_raises_is_exited():
    class Bad(nn.Module):
        def forward(self, x):
            raise KeyError

    net = nn.Sequential(Bad())
    with autogradviz.record(net) as trace:
        with pytest.raises(KeyError):
            net(1)
        net2 = nn.Linear(1, 1)
        net2(torch.rand(1, 1))
    calls = trace.log.of(ModuleEntered)
    assert [c.parent_call_id for c in calls] == [None, 0, None]


def test_tensors_of_a_module_that_raised_are_freed():
    held = []

    class Bad(nn.Module):
        def forward(self, x):
            inner = x + 1
            held.append(weakref.ref(inner))
            return nn.Linear(2, 2)(inner)

    with autogradviz.record():
        with contextlib.suppress(RuntimeError):
            nn.Sequential(Bad())(torch.rand(1, 3))
        assert held[0]() is None


def test_regions_have_their_recomputation_and_its_outcome():
    block, x = Block(), torch.rand(2, 8)
    with autogradviz.record() as trace:
        y = checkpoint(block, x, use_reentrant=False)  # <region>
        with set_checkpoint_early_stop(False):
            z = checkpoint(block, y, use_reentrant=False)
        z.sum().backward()
    first, second = trace.checkpoints()
    assert (first.function, first.early_stop, second.early_stop) == ("Block.forward", True, False)
    assert first.location.lineno == line_of("region")
    assert [r.recomputations[0].outcome for r in (first, second)] == ["early_stop", "completed"]
    for region in (first, second):
        (again,) = region.recomputations
        assert again.first_difference is None
        assert [s.slot for s in again.saved] == [s.slot for s in region.saved]
        assert len(region.saved) > 0
    statuses = {pair.status for pair in second.recomputations[0].pairs}
    assert statuses == {"same"}
    assert {s.packed_by for s in first.saved} == {"checkpoint"}
    assert all(s.released_seq is not None for s in first.saved)


def test_failed_recomputation_has_the_outcome_error():
    calls = []

    def work(x):
        calls.append(1)
        if len(calls) > 1:
            raise ValueError("no")
        return x.exp()

    with autogradviz.record() as trace, pytest.raises(ValueError, match="no"):
        checkpoint(work, torch.rand(3, requires_grad=True), use_reentrant=False).sum().backward()
    assert [r.outcome for r in trace.log.of(RecomputeStopped)] == ["error"]


def test_nested_regions_have_their_parents():
    def inner(x):
        return x.exp()

    def outer(x):
        return checkpoint(inner, x.sin(), use_reentrant=False)

    with autogradviz.record() as trace:
        x = torch.rand(3, requires_grad=True)
        checkpoint(outer, x, use_reentrant=False).sum().backward()
    regions = trace.log.of(RegionEntered)
    assert [(r.function.split(".")[-1], r.parent_region_id) for r in regions] == [
        ("outer", None),
        ("inner", 0),  # the outer recomputation stops before it reaches the inner region
    ]


def test_saves_have_the_kind_of_their_hooks():
    a = torch.rand(3, requires_grad=True)
    with autogradviz.record() as trace:
        b = a.exp()
        with saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
            c = b.sin()
        with save_on_cpu():
            d = c.cos()
        with allow_mutation_on_saved_tensors():
            e = d.tan()
            e.add_(1)
            e.sum().backward()
    packed = {s.op.name: (s.packed_by, s.slot) for s in trace.saved_tensors()}
    assert packed == {
        "exp": ("pytorch", "result"),
        "sin": ("user", "self"),
        "cos": ("offload", "self"),
        "tan": ("allow_mutation", "result"),
    }
    (clone,) = trace.log.of(MutationCloned)
    saved_tan = next(s for s in trace.saved_tensors() if s.op.name == "tan")
    assert clone.storage_id == saved_tan.tensor.storage_id
    (history,) = [
        h for h in trace.storage_histories(written=True) if h.storage_id == clone.storage_id
    ]
    assert [entry.kind for entry in history.entries] == [
        "saved",
        "cloned",
        "written",
        "unpacked",
        "released",
    ]


def test_write_under_user_hooks_is_recorded_where_pytorch_does_not_check():
    a = torch.rand(3, requires_grad=True)
    with autogradviz.record() as trace:
        with saved_tensors_hooks(lambda t: t, lambda t: t):
            b = a.exp()
            loss = b.sum()
        b.add_(1)
        loss.backward()
    (unpack,) = trace.log.of(TensorUnpacked)
    assert (unpack.version, unpack.seen_version) == (0, 1)


def test_backwards_have_roots_inputs_and_flags():
    a = torch.rand(3, requires_grad=True)
    with autogradviz.record() as trace:
        b = a.exp()
        (g,) = torch.autograd.grad(b.sum(), b, create_graph=True)
        (g.sum() + b.sum()).backward()
    first, second = trace.log.of(BackwardStarted)
    name = {n.node_id: n.node_name for n in trace.log.of(NodeSeen)}
    assert [name[i] for i in first.input_ids] == ["ExpBackward0"]
    assert (first.create_graph, first.retain_graph, first.accumulate) == (True, True, False)
    assert (second.create_graph, second.accumulate) == (False, True)


def test_nested_backward_has_its_parent():
    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)  # <custom>
            return x.exp()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                y = x.detach().requires_grad_()
                y.exp().sum().backward()
            return y.grad * g

    with autogradviz.record() as trace:
        Inner.apply(torch.rand(3, requires_grad=True)).sum().backward()
    assert [b.parent_backward_id for b in trace.log.of(BackwardStarted)] == [None, 0]
    (node,) = [n for n in trace.analysis.graph.nodes.values() if n.name == "InnerBackward"]
    assert node.location.lineno == line_of("custom")
    assert [(s.slot, s.version) for s in node.saved] == [("saved_tensors[0]", 0)]


def test_failing_node_is_identified():
    a = torch.rand(3, requires_grad=True)
    with (
        pytest.raises(RuntimeError, match="modified by an inplace") as raised,
        autogradviz.record() as trace,
    ):
        b = a.exp()  # <saves>
        loss = b.sum()
        b.add_(1)  # <writes>
        loss.backward()
    error = trace.analysis.error
    assert error.type_name == "RuntimeError"
    assert trace.analysis.graph.nodes[error.node_id].name == "ExpBackward0"
    assert trace.analysis.graph.nodes[error.node_id].state == "failed"
    (finding,) = trace.diagnose()
    assert finding.slug == "saved-tensor-mutated"
    assert (finding.culprit.lineno, finding.victim.lineno) == (line_of("writes"), line_of("saves"))
    assert finding.confidence == "certain"
    assert "version 0" in finding.explanation
    (note,) = raised.value.__notes__
    assert len(note.splitlines()) <= 30
    assert (
        f"test_recorded_events.py:{line_of('writes')}, in test_failing_node_is_identified" in note
    )


def test_graph_is_recorded_without_ops():
    net = Block()
    with autogradviz.record(net, ops=False) as trace:
        net(torch.rand(2, 8)).sum().backward()
    assert trace.log.of(OpCalled) == ()
    assert len(trace.log.of(NodeFinished)) == len(trace.log.of(NodeSeen)) > 10
    assert {n.module for n in trace.analysis.graph.nodes.values()} >= {"norm", "up", "down"}


def test_gradients_without_ops_are_identified_by_shape_and_dtype():
    x = torch.rand(2, 3, requires_grad=True)
    with autogradviz.record(ops=False) as trace:
        (x.exp().sin().sum() + x.double().sum()).backward()
    seen = {tensor.tensor_id: tensor for tensor in trace.log.of(TensorSeen)}
    incoming = [seen[tensor_id] for run in trace.log.of(NodeStarted) for tensor_id in run.inputs]
    wide = [tensor for tensor in incoming if tensor.shape == (2, 3)]
    assert {(tensor.dtype, tensor.nbytes, tensor.storage_id) for tensor in wide} == {
        ("float32", 24, None),
        ("float64", 48, None),
    }
    assert len({tensor.tensor_id for tensor in wide}) == 2
    assert len(wide) == 4  # from sin, exp, the copy and the leaf


def test_graph_of_live_tensors_is_recorded_without_a_backward():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    with autogradviz.record(net) as trace:
        out = net(torch.rand(2, 3))
    assert [n.node_name for n in trace.log.of(NodeSeen)][:2] == ["TanhBackward0", "AddmmBackward0"]
    assert out.grad_fn is not None
    assert {n.state for n in trace.analysis.graph.nodes.values()} == {"not_run"}


def test_saved_bytes_rise_in_forward_and_fall_in_backward():
    with autogradviz.record() as trace:
        x = torch.rand(1000, requires_grad=True)
        x.exp().sin().exp().sum().backward()
    memory = trace.analysis.memory
    assert memory.nbytes[memory.peak] == 2 * 4000  # sin and the first exp keep the same tensor
    assert memory.nbytes[-1] == 0


def test_code_from_exec_has_a_location():
    source = io.StringIO("import torch\na = torch.rand(2, requires_grad=True)\na.exp().sum()\n")
    with autogradviz.record() as trace:
        exec(compile(source.getvalue(), "<typed>", "exec"), {})
    op = next(op for op in trace.analysis.ops if op.name == "exp")
    assert (op.location.filename, op.location.lineno) == ("<typed>", 3)


def test_recording_around_a_script_has_its_lines(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nx = torch.rand(2, requires_grad=True)\nx.exp().sum().backward()"
    )
    with autogradviz.record() as trace:
        runpy.run_path(str(script))
    op = next(op for op in trace.analysis.ops if op.name == "exp")
    assert (op.location.filename, op.location.text) == (
        str(script),
        "x.exp().sum().backward()",
    )


def test_cross_entropy_saves_are_recorded_completely():
    with autogradviz.record() as trace:
        logits = torch.rand(4, 5, requires_grad=True)
        F.cross_entropy(logits, torch.tensor([0, 1, 2, 3])).backward()
    saved = trace.log.of(TensorSaved)
    assert sorted(s.slot for s in saved) == ["result", "self", "target", "total_weight"]
    assert all(s.version is not None for s in saved)


def test_arguments_of_a_region_are_kept_until_its_graph_is_freed():
    x = torch.rand(250, 8, requires_grad=True)
    with autogradviz.record() as trace:
        y = checkpoint(Block(), x, use_reentrant=False)
        during = torch.rand(1)  # noqa: F841 - an op in between
        y.sum().backward()
        del y
    (kept,) = [s for s in trace.saved_tensors() if s.is_argument]
    assert (kept.slot, kept.tensor.nbytes, kept.released_seq is not None) == (
        "args[0]",
        8000,
        True,
    )
    (region,) = trace.checkpoints()
    assert kept not in region.saved
    assert trace.analysis.memory.nbytes[0] == 8000


class Probe(torch.autograd.Function):
    """Runs one op in forward and one in backward, and stores the calling functions of each."""

    called: ClassVar[dict[str, list[str]]] = {}

    @staticmethod
    def forward(ctx, x):
        Probe.called["aten.cosh.default"] = calling_functions()
        return torch.cosh(x)

    @staticmethod
    def backward(ctx, gradient):
        Probe.called["aten.sinh.default"] = calling_functions()
        return torch.sinh(gradient)


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


class Inner(nn.Module):
    def forward(self, x):
        return Probe.apply(x)


def calling_functions():
    """Return the running functions up to the test, innermost first."""
    names = [frame.name for frame in reversed(traceback.extract_stack()[:-1])]
    return names[: names.index("test_stack_contains_all_frames_from_the_op_to_the_recording") + 1]


@pytest.mark.parametrize("depth", [1, 4])
def test_stack_contains_all_frames_from_the_op_to_the_recording(depth):
    net = Inner()
    for _ in range(depth):
        net = Outer(net)
    with autogradviz.record() as trace:
        net(torch.ones(3, requires_grad=True)).sum().backward()
    frames = {frame.frame_id: frame.function for frame in trace.log.of(FrameSeen)}
    stacks = {stack.stack_id: stack.frame_ids for stack in trace.log.of(StackSeen)}
    for op in trace.log.of(OpCalled):
        if op.op in Probe.called:
            names = [frames[number].rpartition(".")[2] for number in stacks[op.stack_id]]
            assert names == Probe.called.pop(op.op)
    assert Probe.called == {}


class HoldsItself(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.itself = self

    def forward(self, x):
        return self.fc(x)


def test_module_that_contains_itself_is_named_once():
    with autogradviz.record() as trace:
        HoldsItself()(torch.rand(1, 2)).sum().backward()
    assert trace.log.of(RecorderFailed) == ()
    assert [event.module_name for event in trace.log.of(ModuleSeen)] == [
        "HoldsItself",
        "HoldsItself.fc",
    ]
    assert [event.parameter_name for event in trace.log.of(ParameterSeen)] == [
        "HoldsItself.fc.weight",
        "HoldsItself.fc.bias",
    ]


class SavesInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = x.square()
        ctx.save_for_backward(x)
        return result

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


class DoublesInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.mark_dirty(x.mul_(2))
        return x

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


@pytest.mark.parametrize("engine", ["python", "native"])
def test_custom_function_saves_the_version_at_the_end_of_its_forward(engine, built, monkeypatch):
    monkeypatch.setenv("AUTOGRADVIZ_CACHE", str(built))
    x = torch.ones(3, requires_grad=True) * 1
    with pytest.raises(RuntimeError, match="is at version 1; expected version 0"):
        with autogradviz.record(engine=engine) as trace:
            y = SavesInput.apply(x)
            with torch.no_grad():
                x.add_(1)
            y.sum().backward()
    assert versions_of_saved_tensors(trace) == [0]

    x = torch.ones(3, requires_grad=True) * 1
    with autogradviz.record(engine=engine) as trace:
        DoublesInPlace.apply(x).sum().backward()
    assert versions_of_saved_tensors(trace) == [2]  # one for mul_, one for mark_dirty


def versions_of_saved_tensors(trace):
    """Return the versions of the tensors that custom Functions saved."""
    return [
        save.version
        for save in trace.analysis.saved.values()
        if save.slot.startswith("saved_tensors")
    ]
