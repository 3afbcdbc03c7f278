"""Transforms of ``torch.func``: what recordings say of the gradients inside."""

import pytest
import torch
from torch.func import functional_call, grad, jacrev, jvp, vjp, vmap

import autogradviz
from autogradviz.events import OpCalled

ENGINES = ["python", "native"]
PARAMETERS = {"a": torch.rand(3), "b": torch.rand(3)}
INPUTS = torch.rand(2, 3)


def detached(p, x):
    h = (p["a"] * x).sin().detach()  # the cut
    return (h * p["b"]).sum()


def data_read(p, x):
    h = (p["a"] * x).sin()
    h = h.data  # the cut
    return (h * p["b"]).sum()


def not_graded(p, x):
    with torch.no_grad():  # the cut
        h = (p["a"] * x).sin()
    return (h * p["b"]).sum()


def partly_detached(p, x):
    h = p["a"] * p["b"]
    return (h * h.detach() * x).sum()  # the cut


def differentiable(p, x):
    return (p["a"] * p["b"] * x).sin().sum()


def one_unused(p, x):
    return (p["b"] * x).sum()


def by_grad(function):
    return grad(function)(PARAMETERS, INPUTS[0])


def by_vmap(function):
    return vmap(grad(function), in_dims=(None, 0))(PARAMETERS, INPUTS)


def by_jacrev(function):
    return jacrev(function)(PARAMETERS, INPUTS[0])


def by_vjp(function):
    out, back = vjp(lambda p: function(p, INPUTS[0]), PARAMETERS)
    return back(torch.ones_like(out))[0]


WAYS = [by_grad, by_vmap, by_jacrev, by_vjp]


def record(engine, step, **options):
    with autogradviz.record(engine=engine, **options) as trace:
        step()
    return trace


def line_of(function, mark="# the cut"):
    code = function.__code__
    lines = open(code.co_filename, encoding="utf-8").read().split("\n")  # noqa: SIM115
    return next(
        number for number, text in enumerate(lines, 1)
        if number >= code.co_firstlineno and mark in text
    )  # fmt: skip


@pytest.mark.one_in(4, reason="all ways on both engines", in_ci=1)
@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", [detached, data_read, not_graded])
def test_detach_inside_a_transform_has_an_entry_with_its_line(engine, way, function):
    trace = record(engine, lambda: way(function))
    (entry,) = trace.audit()
    assert (entry.mechanism, entry.confidence) == ("cut", "hint")
    assert entry.location.lineno == line_of(function)
    assert "zeros as the gradient of 1 tensor (float32 3)" in entry.effect
    (finding,) = trace.diagnose()
    assert (finding.slug, finding.culprit) == ("gradient-cut", entry.location)
    assert torch.equal(way(function)["a"], torch.zeros_like(way(function)["a"]))


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("way", WAYS)
def test_detach_of_one_of_two_paths_is_in_the_audit_only(engine, way):
    trace = record(engine, lambda: way(partly_detached))
    (entry,) = trace.audit()
    assert (entry.mechanism, entry.confidence) == ("cut", "hint")
    assert entry.location.lineno == line_of(partly_detached)
    assert not trace.diagnose()


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", [differentiable, one_unused])
def test_transforms_of_correct_functions_have_no_entry(engine, way, function):
    trace = record(engine, lambda: way(function))
    assert not trace.audit()
    assert not trace.diagnose()


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("step", "what"),
    [
        (lambda: by_vmap(differentiable), "torch.func computed gradients"),
        (lambda: by_jacrev(differentiable), "torch.func computed gradients"),
        (
            lambda: jvp(torch.sin, (INPUTS,), (INPUTS,)),
            "torch.func computed derivatives in forward mode",
        ),
    ],
)
def test_notice_names_what_is_not_recorded_and_the_first_line(engine, step, what):
    trace = record(engine, step)
    (notice,) = [each for each in trace.analysis.notices if each.hook_point == "torch.func"]
    assert notice.message.startswith(what)
    assert f"first at {__file__}:" in notice.message
    assert what in " ".join(str(trace).split())
    without = record(engine, step, stacks=False)
    assert any(each.message.startswith(what) for each in without.analysis.notices)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("engine", ENGINES)
def test_functional_call_and_vmap_without_derivatives_have_no_notice(engine):
    net = torch.nn.Linear(3, 1)

    def step():
        functional_call(net, dict(net.named_parameters()), INPUTS).sum().backward()
        vmap(torch.sin)(INPUTS)

    hook_points = [each.hook_point for each in record(engine, step).analysis.notices]
    assert "torch.func" not in hook_points


def test_certificate_says_that_it_covers_no_gradient_of_a_transform():
    def both():
        x = torch.rand(3, requires_grad=True)
        x.exp().sum().backward()
        by_grad(differentiable)

    only = record("python", lambda: by_grad(differentiable), verify=True).certificate()
    assert "no gradient was verified, and none of torch.func" in repr(only)
    assert "not verified: torch.func computed gradients: " in str(only)
    assert f"first at {__file__}:" in str(only)
    mixed = record("python", both, verify=True).certificate()
    assert "5 of 5 facts hold, and none of torch.func" in repr(mixed)


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("way", WAYS)
def test_both_engines_record_operators_of_transforms_with_the_same_tensors(way):
    def ops(engine):
        trace = record(engine, lambda: way(detached))
        return [(op.op, len(op.inputs), len(op.outputs), op.inputs == op.outputs)
                for op in trace.log.of(OpCalled) if op.phase == "forward"]  # fmt: skip

    assert ops("native") == ops("python")
