"""Programs from recordings raise the same exception when they run."""

import contextlib
import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz import events as e
from autogradviz.cli import main
from autogradviz.reproduce.reproduction import reproduce
from autogradviz.reproduce.run_programs import ProgramRunner


@pytest.fixture(scope="module")
def runner():
    with ProgramRunner(3600) as started:
        started.find_functions([], checkpoint=True)
        yield started


def record_failure(step, engine="auto"):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any exception of a step
        with autogradviz.record(engine=engine) as trace:
            step()
    assert caught.value
    return trace


def in_place():
    x = torch.rand(3, 4, requires_grad=True)
    hidden = (x * 2).exp()
    (hidden.tanh() + 1).sum()
    hidden.mul_(2)
    hidden.sum().backward()


def graph_freed():
    loss = torch.rand(3, requires_grad=True).exp().sum()
    loss.backward()
    loss.backward()


def wrong_shapes():
    linear = nn.Linear(4, 2)
    linear(torch.rand(3, 5)).sum().backward()


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return (gradient * x).sum(0)


def wrong_gradient():
    Double.apply(torch.rand(3, 4, requires_grad=True)).sum().backward()


def other_recomputation():
    calls = []

    def region(x):
        calls.append(x)
        return x.exp().sin() if len(calls) == 1 else x.exp()

    checkpoint(region, torch.rand(3, requires_grad=True), use_reentrant=False).sum().backward()


def hook_of_another_shape():
    x = torch.rand(3, 4, requires_grad=True) * 2
    x.register_hook(lambda gradient: gradient.sum(0))
    x.exp().sum().backward()


STEPS = [in_place, graph_freed, wrong_gradient, other_recomputation, hook_of_another_shape]


@pytest.mark.parametrize("engine", ["auto", "python"])
@pytest.mark.parametrize("step", STEPS)
def test_program_raises_the_same_exception(step, engine, runner):
    trace = record_failure(step, engine)
    found = reproduce(trace.analysis, (), source=False, seconds=300, runner=runner)
    assert found.same, f"{found.expected}\n{found.got}\n{found.text}"
    assert found.statements <= 12
    assert "autogradviz" not in found.text.partition("\n")[2]


@pytest.mark.ci(reason="reduces a whole program")
def test_shapes_that_do_not_fit_raise_the_same_exception(runner):
    trace = record_failure(wrong_shapes)
    found = reproduce(trace.analysis, (), source=False, seconds=300, runner=runner)
    assert found.same
    assert "addmm" in found.text


def test_program_is_short_and_has_no_text_of_the_user(runner):
    trace = record_failure(in_place)
    found = reproduce(trace.analysis, (), source=False, seconds=300, runner=runner)
    lines = found.text.split("\n")[2:]
    assert [line for line in lines if line and "import" not in line and "seed" not in line] == [
        "x1 = torch.rand(3, 4, requires_grad=True)",
        "t1 = x1.exp()",
        "t1.mul_(2)",
        "t1.sum().backward()",
    ]
    with_source = reproduce(trace.analysis, (), source=True, seconds=300, runner=runner)
    assert "# hidden.mul_(2)" in with_source.text


def gradients_of_gradients():
    x = torch.rand(4, requires_grad=True)
    (slope,) = torch.autograd.grad(x.exp().sum(), [x], create_graph=True)
    penalty = slope.square()
    penalty.sum().backward()
    penalty.sum().backward()


def gradient_that_is_used():
    x = torch.rand(4, requires_grad=True)
    x.exp().sum().backward(create_graph=True)
    penalty = x.grad.square()
    x.grad.mul_(2)
    penalty.sum().backward()


def edge_between_two_parts():
    x = torch.rand(4, requires_grad=True)
    half = x.exp()
    cut = half.detach().requires_grad_()
    loss = cut.square().sum()
    for _ in range(2):
        torch.autograd.grad([torch.autograd.graph.get_gradient_edge(loss)], [cut])


def unused_input():
    x, y = (torch.rand(4, requires_grad=True) for _ in range(2))
    torch.autograd.grad(x.exp().sum(), [y])


@pytest.mark.parametrize(
    "step", [gradients_of_gradients, gradient_that_is_used, edge_between_two_parts, unused_input]
)
def test_program_takes_gradients_as_the_step_does(step, runner):
    trace = record_failure(step)
    found = reproduce(trace.analysis, (), source=False, seconds=300, runner=runner)
    assert found.same, f"{found.expected}\n{found.got}\n{found.text}"


def test_program_that_cannot_be_written_compiles():
    x = torch.rand(3, requires_grad=True)
    trace = record_failure(lambda: x.exp().sum().view(7).backward())
    reproduced = reproduce(trace.analysis, (), source=False, seconds=5)
    compile(reproduced.text, "bug.py", "exec")


# --- findings without an exception ----------------------------------------------------------


def not_finite():
    x = torch.tensor([1.0, 200.0, 3.0], requires_grad=True)
    torch.where(x < 88, x.exp(), x).sum().backward()
    return x


def missing():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    with torch.no_grad():
        hidden = model[0](torch.rand(2, 3))
    model[1](hidden).sum().backward()
    return model


@pytest.mark.one_in(3, reason="searches programs for each finding", in_ci=1)
@pytest.mark.parametrize(
    ("step", "slug", "assertion"),
    [
        (not_finite, "not-finite", "assert not x1.grad.isfinite().all()"),
        (missing, "gradient-missing", "assert w1.grad is None"),
    ],
)
def test_program_of_a_finding_asserts_what_is_wrong(step, slug, assertion):
    with autogradviz.record() as trace:
        kept = step()
    assert kept is not None
    assert trace.diagnose()[0].slug == slug
    found = trace.reproduce()
    assert found.same
    assert (found.expected, found.got) == (slug, slug)
    assert assertion in found.text.split("\n")
    done = subprocess.run([sys.executable, "-c", found.text], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "autogradviz" not in found.text.partition("\n")[2]


def clipped_too_late():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(torch.rand(2, 3)).sum().backward()
    optimizer.step()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return model


@pytest.mark.ci(reason="records each program that it tries")
def test_finding_that_no_gradient_shows_is_named():
    with autogradviz.record() as trace:
        kept = clipped_too_late()
    assert kept is not None
    found = trace.reproduce(seconds=5)
    assert found.expected == "clip-after-step"
    assert found.missing[-1:] == (
        "an assertion: clip-after-step shows in no single gradient, only in a recording",
    )


# --- wrong gradients without an exception ---------------------------------------------------


def silent_write():
    hidden = torch.rand(3, requires_grad=True).exp()
    loss = hidden.sum()
    hidden.data.mul_(2)
    loss.backward()


def other_operators_when_recomputed():
    w, calls = torch.rand(3, requires_grad=True), []

    def region(x):
        calls.append(x)
        return ((x * w).tanh() if len(calls) == 1 else (x * w).sigmoid()).sin()

    checkpoint(region, torch.rand(3), use_reentrant=False).sum().backward()


def state_changed_twice():
    region = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh())
    checkpoint(region, torch.rand(3, 4), use_reentrant=False).sum().backward()
    return region


def reentrant_without_gradients():
    first, last = nn.Linear(3, 3), nn.Linear(3, 1)
    last(checkpoint(first, torch.rand(2, 3), use_reentrant=True)).sum().backward()
    return first, last


def one_buffer_for_all_saved_tensors():
    buffer, w = torch.zeros(4), torch.rand(2, 2, requires_grad=True)

    def pack(tensor):
        return buffer.copy_(tensor.detach().reshape(-1))

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed.view(2, 2)):
        loss = ((torch.rand(2, 2) @ w).tanh() @ w).sum()
    loss.backward()


NOT_EQUAL = "assert not torch.allclose(right, wrong, equal_nan=True)"


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("engine", ["auto", "python"])
@pytest.mark.parametrize(
    ("step", "slug", "cause", "assertion"),
    [
        (silent_write, "silent-write", "    if not right:", NOT_EQUAL),
        (other_operators_when_recomputed, "checkpoint-saves-shifted", "checkpoint(", NOT_EQUAL),
        (state_changed_twice, "checkpoint-effect-repeated", "checkpoint(", NOT_EQUAL),
        (reentrant_without_gradients, "reentrant-no-grad-input", "checkpoint(",
         "assert right is not None and wrong is None"),
        (one_buffer_for_all_saved_tensors, "hook-memory-reused", "nullcontext()", NOT_EQUAL),
    ],
)  # fmt: skip
def test_program_compares_a_wrong_gradient_with_the_right_one(
    step, slug, cause, assertion, engine, runner
):
    with autogradviz.record(engine=engine) as trace:
        kept = step()
    findings = trace.diagnose()
    assert findings[0].slug == slug
    found = reproduce(trace.analysis, findings, source=False, seconds=300, runner=runner)
    assert found.same, found.text
    assert (found.expected, found.got, found.missing) == (slug, slug, ())
    assert assertion in found.text.split("\n")
    assert any(cause in line for line in found.text.split("\n") if "right" in line)
    assert "autogradviz" not in found.text.partition("\n")[2]
    assert runner.run(found.text).type_name is None
    del kept


class BackwardInside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            (found,) = torch.autograd.grad((leaf * 2).sum(), [leaf])
        return (found * gradient).sum(0)


def test_backward_inside_a_backward_is_named(runner):
    trace = record_failure(
        lambda: BackwardInside.apply(torch.rand(3, 4, requires_grad=True)).sum().backward()
    )
    found = reproduce(trace.analysis, (), source=False, seconds=300, runner=runner)
    assert found.missing == ("a backward inside a backward",)


# --- saved-tensor hooks ----------------------------------------------------------------------


def unpacked_in_another_dtype():
    w = torch.rand(4, 4, requires_grad=True)
    pair = torch.autograd.graph.saved_tensors_hooks(lambda t: t.bfloat16(), lambda t: t)
    with pair:
        loss = (torch.rand(3, 4) @ w).sum()
    loss.backward()


def hooks_disabled():
    x = torch.rand(3, requires_grad=True)
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        checkpoint(torch.exp, x, use_reentrant=False)


def saved_on_cpu_twice():
    with torch.autograd.graph.save_on_cpu():
        loss = torch.rand(3, requires_grad=True).exp().sum()
    loss.backward()
    loss.backward()


def written_where_mutation_is_allowed():
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        y = torch.rand(3, requires_grad=True).exp()
        y.sin()
        y.mul_(2)
    y.sum().backward()


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (unpacked_in_another_dtype, "saved_tensors_hooks(pack1, unpack1)"),
        (hooks_disabled, "disable_saved_tensors_hooks('not here')"),
        (saved_on_cpu_twice, "backward()"),
        (written_where_mutation_is_allowed, "allow_mutation_on_saved_tensors()"),
    ],
)
def test_program_enters_the_saved_tensor_hooks(step, text, runner):
    trace = record_failure(step)
    found = reproduce(trace.analysis, (), source=False, seconds=300, runner=runner)
    assert found.same, f"{found.expected}\n{found.got}\n{found.text}"
    assert text in found.text


def test_hooks_that_run_no_operators_are_named(runner):
    def step():
        with torch.autograd.graph.saved_tensors_hooks(lambda t: [t], lambda kept: kept[0]):
            loss = torch.rand(3, requires_grad=True).exp().sum()
        loss.backward()
        loss.backward()

    trace = record_failure(step)
    found = reproduce(trace.analysis, (), source=False, seconds=300, runner=runner)
    assert found.same
    assert found.missing == (
        "hooks on saved tensors that run no operators; here they return the tensor",
    )


def test_redacted_trace_cannot_be_reproduced():
    trace = record_failure(in_place)
    with pytest.raises(autogradviz.NothingToReproduceError):
        trace.redacted().reproduce()


def test_trace_without_an_exception_or_a_finding_has_nothing_to_show():
    with autogradviz.record() as trace:
        torch.rand(3, requires_grad=True).sum().backward()
    nothing = trace.reproduce()
    assert not nothing.same
    assert str(nothing) == "nothing to reproduce: the recording has no exception and no finding"
    assert str(nothing) in repr(nothing)
    with pytest.raises(autogradviz.NothingToReproduceError):
        nothing.save("bug.py")


@pytest.mark.parametrize("engine", ["auto", "python"])
def test_arguments_and_strides_are_recorded(engine):
    x = torch.rand(4, 3).t()
    with autogradviz.record(engine=engine) as trace:
        torch.softmax(x * 0.5, -1).sum(0, keepdim=True).to(torch.float64)
    texts = {each.arguments_id: each.arguments for each in trace.log.of(e.ArgumentsSeen)}
    assert [texts[each.arguments_id] for each in trace.log.of(e.OpCalled)] == [
        '{"self": "$", "other": 0.5}',
        '{"self": "$", "dim": -1, "half_to_float": false}',
        '{"self": "$", "dim": [0], "keepdim": true}',
        '{"self": "$", "*dtype": "torch.float64"}',
    ]
    (strides,) = trace.log.of(e.StridesSeen)
    assert strides.strides == (1, 3)


def test_equal_arguments_are_recorded_once_and_unequal_types_apart():
    x = torch.rand(3)
    for engine in ("auto", "python"):
        with autogradviz.record(engine=engine) as trace:
            for number in (1, 1.0, 1, True):
                x * number
        assert [each.arguments for each in trace.log.of(e.ArgumentsSeen)] == [
            '{"self": "$", "other": 1}',
            '{"self": "$", "other": 1.0}',
            '{"self": "$", "other": true}',
        ]


@pytest.mark.ci(reason="starts PyTorch in another process")
def test_command_writes_a_program_that_raises_next_to_the_script(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "step.py").write_text("print('of the user')")
    os.utime(tmp_path / "step.py", (1, 1))
    record_failure(graph_freed).save("step.agv")
    for _ in range(2):  # the second time it replaces its own program
        assert main(["reproduce", "step.agv", "--seconds", "300"]) == 0
        assert "(the same)" in capsys.readouterr().out
    run = subprocess.run(
        [sys.executable, "step.repro.py"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "Trying to backward through the graph a second time" in run.stderr
    assert (tmp_path / "step.py").read_text() == "print('of the user')"
    assert (tmp_path / "step.py").stat().st_mtime == 1


@pytest.mark.parametrize("options", [[], ["--overwrite"]])
def test_command_never_replaces_a_program_of_the_user(tmp_path, capsys, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "step.py").write_text("print('of the user')")
    record_failure(graph_freed).save("step.agv")
    with contextlib.suppress(SystemExit):
        assert main(["reproduce", "step.agv", "-o", "step.py", *options]) == 2
    assert (tmp_path / "step.py").read_text() == "print('of the user')"
    assert capsys.readouterr().err


def test_command_writes_nothing_if_it_cannot_repeat_the_recording(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record_failure(graph_freed).save("step.agv")
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "step.agv", "--seconds", "0.001"])
    assert ended.value.code == 1
    assert capsys.readouterr().out.startswith("nothing was written: ")
    assert [path.name for path in tmp_path.iterdir()] == ["step.agv"]
