"""Gradient edges, double backward, custom functions and modes are recorded and drawn."""

import threading
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from drawing_summary import bars, boxes, bumps, leaf, marked_line, notes, saved_badges
from torch import nn
from torch.autograd.function import once_differentiable
from torch.autograd.graph import get_gradient_edge

import autogradviz
from autogradviz.events import (
    BackwardStarted,
    ContextTensorKept,
    FunctionMarked,
    GradAccumulated,
    ModeChanged,
    RandomDrawn,
    RecorderFailed,
    RequiresGradChanged,
    TensorSaved,
)

line_of = partial(marked_line, __file__)


# --- roots, inputs and double backward ------------------------------------------------------------


def test_gradient_edges_are_roots_and_inputs_of_a_backward():
    with autogradviz.record() as trace:
        a = leaf()
        b = a.exp()
        edge = get_gradient_edge(b)
        torch.autograd.grad(b.sin().sum(), [edge, a], retain_graph=True)
        torch.autograd.backward([edge], [torch.ones(3)])
    first, second = trace.log.of(BackwardStarted)
    name = {node.node_id: node.name for node in trace._scene.nodes}
    assert [name[i] for i in (*first.input_ids, *second.root_ids)] == ["ExpBackward0"] * 2
    assert (len(first.input_tensor_ids), second.root_tensor_ids) == (1, ())
    assert (first.accumulate, first.retain_graph, second.accumulate) == (False, True, True)
    assert boxes(trace) == [
        ("ExpBackward0", "ran", 2),
        ("SinBackward0", "ran", 1),
        ("SumBackward0", "ran", 1),
    ]


def test_only_the_given_inputs_accumulate_gradients():
    with autogradviz.record() as trace:
        a, b = leaf(), leaf()
        (a * b).sum().backward(inputs=[a])
    (started,) = trace.log.of(BackwardStarted)
    assert len(started.input_tensor_ids) == 1
    (accumulated,) = trace.log.of(GradAccumulated)
    assert accumulated.tensor_id == started.input_tensor_ids[0]
    assert [s.label for s in trace._scene.spans if s.kind == "node"][-1] == "AccumulateGrad"


def test_double_backward_has_separate_nodes():
    with autogradviz.record() as trace:
        a = leaf()
        (g,) = torch.autograd.grad(a.exp().sin().sum(), a, create_graph=True)
        g.sum().backward()
    assert [b.create_graph for b in trace.log.of(BackwardStarted)] == [True, False]
    made = [node for node in trace._scene.nodes if node.name in {"CosBackward0", "MulBackward0"}]
    assert [node.op for node in made] == ["cos", "mul", "mul"]  # ops of the first backward
    exp = trace._scene.nodes[0]
    assert (exp.name, exp.runs) == ("ExpBackward0", 2)
    assert {e.target for e in trace._scene.edges if e.source == made[-1].index} == {0, 4}


def test_several_roots_and_backwards_over_one_graph_are_drawn():
    with autogradviz.record() as trace:
        a = leaf()
        both = [a.exp().sum(), a.sin().sum()]
        torch.autograd.backward(both, retain_graph=True)
        torch.autograd.backward(both)
    assert [len(b.root_ids) for b in trace.log.of(BackwardStarted)] == [2, 2]
    assert {(state, runs) for _, state, runs in boxes(trace)} == {("ran", 2)}
    assert [len(node.runs_ns) for node in trace._scene.nodes] == [4] * 4
    assert len([s for s in trace._scene.spans if s.kind == "backward"]) == 2


def test_freed_graph_used_again_is_reported_and_drawn():
    with pytest.raises(RuntimeError, match="second time"), autogradviz.record() as trace:
        loss = leaf().exp().sum()
        loss.backward()
        loss.backward()
    assert boxes(trace) == [("ExpBackward0", "failed", 1), ("SumBackward0", "ran", 2)]
    assert [f.slug for f in trace._scene.findings] == ["graph-freed"]


class Recurrent(torch.nn.Module):
    """Keeps its state in an attribute, with its graph."""

    def __init__(self):
        super().__init__()
        self.cell = torch.nn.Linear(3, 3)
        self.state = None

    def forward(self, x):
        state = self.state
        if state is None:
            state = torch.zeros(2, 3)
        for _ in range(2):
            state = torch.tanh(self.cell(x) + state)
        self.state = state
        return state.sum()


class UpdatedInPlace(Recurrent):
    """Assigns its state on the line that computes it."""

    def forward(self, x):
        if self.state is None:
            self.state = torch.zeros(2, 3)
        self.state = torch.tanh(self.cell(x) + self.state)
        return self.state.sum()


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (Recurrent, "self.state = state"),
        (UpdatedInPlace, "self.state = torch.tanh(self.cell(x) + self.state)"),
    ],
)
def test_attribute_that_kept_a_freed_graph_is_reported(kind, line):
    net = kind()
    with pytest.raises(RuntimeError, match="second time"), autogradviz.record() as trace:
        for _ in range(2):
            net(torch.rand(2, 3)).backward()
    (finding,) = trace.diagnose()
    assert finding.slug == "graph-freed"
    assert finding.culprit.text == line
    assert finding.fix.startswith("self.state = self.state.detach()")


# --- custom functions ---------------------------------------------------------------------------


class Styled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.mask = x * 2
        return x.exp()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        with torch.enable_grad():
            y = ctx.saved_tensors[0].detach().requires_grad_()
            y.exp().sum().backward()
        return g * y.grad


class Split(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_custom_function_saves_and_ctx_attributes_are_recorded():
    with autogradviz.record() as trace:
        Styled.apply(leaf()).sum().backward()
    (kept,) = trace.log.of(ContextTensorKept)
    assert (kept.slot, kept.own_output) == ("ctx.mask", False)
    assert trace._scene.nodes[0].name == "StyledBackward"
    assert saved_badges(trace)[0] == ("saved_tensors[0]", 0, "released", "pytorch", 12)
    inner = [s for s in trace._scene.spans if s.kind == "backward"]
    assert [span.depth for span in inner] == [0, 1]  # a backward inside a backward
    assert [b.parent_backward_id for b in trace.log.of(BackwardStarted)] == [None, 0]


def test_once_differentiable_function_ends_the_double_backward():
    with pytest.raises(RuntimeError), autogradviz.record() as trace:
        a = leaf()
        (g,) = torch.autograd.grad(Styled.apply(a).sum(), a, create_graph=True)
        g.sum().backward()
    last = trace.log.of(BackwardStarted)[-1]
    assert (last.root_ids, trace._scene.summary.error_type) == ((), "RuntimeError")
    assert "StyledBackward" in trace.graph().svg()


def test_setup_context_and_mark_dirty_functions_are_drawn():
    with autogradviz.record() as trace:
        Split.apply(Dirty.apply(leaf() * 2)).sum().backward()
    names = [node.name for node in trace._scene.nodes]
    assert names == ["MulBackward0", "DirtyBackward", "SplitBackward", "SumBackward0"]
    assert bumps(trace)[0] == ("aten.mul_.Tensor", 0, 1)
    assert ("saved_tensors[0]", 0, "released", "pytorch", 12) in saved_badges(trace)


# --- modes, threads and kinds of tensors --------------------------------------------------------


def test_modes_are_drawn_where_they_lost_the_graph():
    net = nn.Linear(3, 3)
    with pytest.raises(RuntimeError), autogradviz.record(net) as trace:
        with torch.no_grad():  # <switch>
            h = net(torch.rand(2, 3))
        h.sum().backward()
    assert [(e.mode, e.after) for e in trace.log.of(ModeChanged)] == [
        ("grad", "off"),
        ("grad", "on"),
    ]
    (finding,) = trace._scene.findings
    assert (finding.slug, finding.culprit_line) == ("graph-lost", line_of("switch"))


def test_freeze_is_drawn_where_it_lost_the_graph():
    net = nn.Linear(3, 3)
    with pytest.raises(RuntimeError), autogradviz.record(net) as trace:
        net.requires_grad_(False)  # <freeze>
        net(torch.rand(2, 3)).sum().backward()
    assert [e.requires_grad for e in trace.log.of(RequiresGradChanged)] == [False, False]
    (finding,) = trace._scene.findings
    assert (finding.slug, finding.culprit_line) == ("graph-lost", line_of("freeze"))


def test_forward_lasts_from_the_call_of_the_model_to_its_return():
    class Slow(torch.nn.Module):
        def forward(self, x):
            time.sleep(0.005)
            y = x.exp()
            time.sleep(0.005)
            return y

    x = torch.ones(2, requires_grad=True)
    with autogradviz.record() as trace:
        Slow()(x).sum().backward()
    (forward,) = [span for span in trace.analysis.timeline.spans if span.kind == "forward"]
    (module,) = [span for span in trace.analysis.timeline.spans if span.kind == "module"]
    assert forward.start_ns == module.start_ns
    assert forward.end_ns > module.end_ns
    assert module.end_ns - module.start_ns > 10_000_000


def test_backward_of_each_thread_has_its_own_bars():
    with autogradviz.record() as trace:
        a = leaf()
        for loss in (a.exp().sum(), a.sin().sum()):
            thread = threading.Thread(target=loss.backward)
            thread.start()
            thread.join()
    assert [b.thread for b in trace.log.of(BackwardStarted)] == [1, 2]
    spans = [s for s in trace._scene.spans if s.kind in {"backward", "node"}]
    assert sorted((s.thread, s.kind, s.label) for s in spans) == [
        (thread, kind, label)
        for thread, name in ((1, "ExpBackward0"), (2, "SinBackward0"))
        for kind, label in (
            ("backward", "backward"),
            ("node", "AccumulateGrad"),
            ("node", name),
            ("node", "SumBackward0"),
        )
    ]


class Sub(torch.Tensor):
    pass


def subclass():
    return leaf().as_subclass(Sub).exp()


def sparse():
    return torch.sparse.mm(leaf(3, 3).to_sparse(), torch.ones(3, 2))


def jagged():
    parts = [leaf(2, 3), leaf(4, 3)]
    nested = torch.nested.as_nested_tensor(parts, layout=torch.jagged)
    return nested.sin().to_padded_tensor(0.0)


def strided():
    nested = torch.nested.as_nested_tensor([leaf(2, 3), leaf(4, 3)], layout=torch.strided)
    return nested.sin().to_padded_tensor(0.0)


def complex_numbers():
    return leaf(dtype=torch.complex64).exp().abs()


KINDS = {
    subclass: ("ExpBackward0", ("result", "float32", 12)),
    sparse: ("SparseAddmmBackward0", ("mat1", "float32", 0)),  # it has no storage
    jagged: ("SinBackward0", ("self", "NestedTensor", 0)),
    strided: ("SinBackward0", ("self", "float32", 0)),  # it has no single shape
    complex_numbers: ("AbsBackward0", ("self", "complex64", 24)),
}


@pytest.mark.parametrize("fingerprints", [False, True])
@pytest.mark.parametrize("work", KINDS)
def test_tensors_of_all_kinds_are_recorded_and_drawn(work, fingerprints):
    with autogradviz.record(fingerprints=fingerprints) as trace:
        work().sum().backward()
    assert trace.log.of(RecorderFailed) == ()
    name, badge = KINDS[work]
    (index,) = [node.index for node in trace._scene.nodes if node.name == name]
    assert trace._scene.nodes[index].state == "ran"
    drawn = [(c.slot, c.dtype, c.nbytes) for c in trace._scene.saved_badges if c.node == index]
    assert badge in drawn
    assert len(trace.log.of(TensorSaved)) >= len(drawn)


# --- outside the graph ----------------------------------------------------------------------------


def here(text):
    return f"integration/{Path(__file__).name}:{line_of(text)}"


def test_modes_have_bars_for_their_duration():
    a = leaf()
    with autogradviz.record() as trace:
        with torch.no_grad():  # <no_grad>
            a.exp()
            with torch.enable_grad():  # <enable_grad>
                with torch.autocast("cpu", dtype=torch.float16):  # <float16>
                    a.sin()
        with torch.inference_mode():  # <inference>
            a.exp()
        with torch.autocast("cpu", dtype=torch.bfloat16):  # <autocast>
            a.exp()
        torch.set_grad_enabled(mode=False)  # <off>
    torch.set_grad_enabled(mode=True)
    assert bars(trace, "mode") == [
        ("gradients off", line_of("no_grad")),
        ("autocast float16 (cpu)", line_of("float16")),
        ("gradients off", line_of("enable_grad")),  # restored at the end of that context
        ("inference mode", line_of("inference")),
        ("autocast bfloat16 (cpu)", line_of("autocast")),
        ("gradients off", line_of("off")),
    ]
    off, half, again, *_, last = [span for span in trace._scene.spans if span.kind == "mode"]
    assert off.end_ns < half.start_ns < half.end_ns < again.start_ns < again.end_ns
    assert last.end_ns == trace._scene.summary.end_ns


def test_requires_grad_change_has_a_marker_on_the_timeline():
    model = nn.Linear(2, 2)
    with autogradviz.record(model) as trace:
        model.bias.requires_grad_(requires_grad=False)  # <frozen>
    assert bars(trace, "toggle") == [("bias.requires_grad = False", line_of("frozen"))]


def test_random_draws_are_recorded_with_their_generator_and_drawn():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    with autogradviz.record(model) as trace:
        x = torch.rand(2, 3, generator=torch.Generator())  # <given>
        model(x)  # <drops>
        model.eval()(x)
        q = torch.ones(1, 1, 2, 4)
        nn.functional.scaled_dot_product_attention(q, q, q)
    drawn = trace.log.of(RandomDrawn)
    assert [(d.op, d.generator, d.device) for d in drawn] == [
        ("aten.rand.generator", "given", "cpu"),
        ("aten.bernoulli_.float", "default", "cpu"),
    ]
    ops = {op.seq: op.overload for op in trace.analysis.ops}
    assert [ops[d.op_seq] for d in drawn] == [d.op for d in drawn]
    assert bars(trace, "random") == [
        ("rand from an explicit generator", line_of("given")),
        ("bernoulli_ from cpu generator", line_of("drops")),
    ]


def words(write, version):
    return f"{write}, v{version} → v{version + 1}"


def test_writes_to_buffers_have_markers_on_the_timeline():
    model = nn.BatchNorm1d(2)
    version = model.num_batches_tracked._version, model.running_mean._version
    with autogradviz.record(model) as trace:
        model(torch.ones(3, 2))  # <counts>
        model.running_mean.copy_(torch.ones(2))  # <copies>
    assert bars(trace, "buffer") == [
        (words("num_batches_tracked written by add_", version[0]), line_of("counts")),
        (words("running_mean written by copy_", version[1]), line_of("copies")),
    ]


def test_backward_has_its_roots_and_requested_inputs():
    model = nn.Linear(2, 1)
    with autogradviz.record(model) as trace:
        hidden = model(torch.ones(1, 2))
        out = hidden.exp()
        torch.autograd.grad(out.sum(), [model.weight, hidden], create_graph=True)  # <grad>
        out.sum().backward(retain_graph=True, inputs=[model.bias])  # <backward>
        torch.autograd.backward([out.sum(), out.mean()])  # <two>
    assert bars(trace, "backward") == [
        ("autograd.grad, 2 inputs, create_graph", line_of("grad")),
        ("backward, inputs=bias, retain_graph", line_of("backward")),
        ("backward, 2 roots", line_of("two")),
    ]
    (requested,) = notes(trace, "AddmmBackward0")
    assert set(requested) == {
        f"gradient of weight requested by autograd.grad · {here('grad')}",
        f"gradient of this node requested by autograd.grad · {here('grad')}",
        f"gradient of bias requested by backward · {here('backward')}",
    }
    roots = notes(trace, "SumBackward0")
    assert roots == [
        (f"a root of autograd.grad · {here('grad')}",),
        (f"a root of backward · {here('backward')}",),
        (f"a root of backward · {here('two')}",),
    ]


class Marking(torch.autograd.Function):
    """Writes its input, and returns a non-differentiable count."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)  # <dirty>
        count = torch.ones(4)
        ctx.mark_non_differentiable(count)  # <count>
        ctx.mask = torch.ones(8)
        return x.mul_(2), count

    @staticmethod
    def backward(ctx, gradient, _):
        return gradient * 2


def test_function_marks_and_ctx_attributes_are_recorded_and_drawn():
    with autogradviz.record() as trace:
        x = leaf().clone()
        Marking.apply(x)[0].sum().backward()
    dirty, count = trace.log.of(FunctionMarked)
    assert [(e.function, e.mark) for e in (dirty, count)] == [
        ("Marking", "mark_dirty"),
        ("Marking", "mark_non_differentiable"),
    ]
    assert [trace.analysis.tensors[e.tensor_ids[0]].shape for e in (dirty, count)] == [(3,), (4,)]
    assert notes(trace, "MarkingBackward") == [
        (
            "keeps ctx.mask, 32 B: no version check, never freed",
            f"mark_dirty: 1 tensor · {here('dirty')}",
            f"mark_non_differentiable: 1 tensor · {here('count')}",
        )
    ]
    assert [c for c in saved_badges(trace) if c[3] == "ctx"] == [
        ("ctx.mask", None, "held", "ctx", 32)
    ]
    assert "ctx.mask" in trace.graph().svg()


@pytest.mark.parametrize(
    ("args", "named"),
    [((), {"mode": False}), ((1,), {}), ((), {}), ((True,), {"mode": False}), ((), {"on": True})],
)
def test_set_grad_enabled_takes_and_rejects_the_same_arguments(args, named):
    def attempt():
        try:
            with torch.set_grad_enabled(*args, **named):
                return torch.is_grad_enabled()
        except TypeError as error:
            return str(error)

    plain = attempt()
    with autogradviz.record():
        recorded = attempt()
    assert recorded == plain
    assert torch.is_grad_enabled()
