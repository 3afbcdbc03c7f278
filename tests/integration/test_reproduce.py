"""Programs from recordings raise the same exception when they run."""

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


def test_finding_that_no_gradient_shows_is_named():
    weight = torch.rand(3, requires_grad=True)
    with autogradviz.record() as trace:
        hidden = weight.exp()
        loss = hidden.sum()
        hidden.data.mul_(2)
        loss.backward()
    found = trace.reproduce()
    assert found.expected == "silent-write"
    assert found.missing == (
        "an assertion: silent-write shows in no single gradient, only in a recording",
    )


def test_redacted_trace_cannot_be_reproduced():
    trace = record_failure(in_place)
    with pytest.raises(autogradviz.NothingToReproduceError):
        trace.redacted().reproduce()


def test_trace_without_an_exception_or_a_finding_has_nothing_to_show():
    with autogradviz.record() as trace:
        torch.rand(3, requires_grad=True).sum().backward()
    with pytest.raises(autogradviz.NothingToReproduceError):
        trace.reproduce()


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
def test_command_writes_a_program_that_raises(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record_failure(graph_freed).save("step.agv")
    assert main(["reproduce", "step.agv", "-o", "bug.py", "--seconds", "300"]) == 0
    assert "(the same)" in capsys.readouterr().out
    run = subprocess.run(
        [sys.executable, "bug.py"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "Trying to backward through the graph a second time" in run.stderr
