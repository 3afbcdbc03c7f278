"""``ctx.input_grad_buffers``: a recording changes neither what is offered nor what is computed."""

from typing import ClassVar

import pytest
import torch
from torch.autograd.function import FunctionCtx
from torch.utils.checkpoint import checkpoint

import autogradviz
from autogradviz.events import GradientBuffersOffered, RecorderFailed

pytestmark = pytest.mark.skipif(
    not hasattr(FunctionCtx, "input_grad_buffers"),
    reason="PyTorch before 2.15 offers no gradient buffers",
)


class MatMul(torch.autograd.Function):
    """Adds its gradients to the buffers that it is offered, and notes these."""

    offered: ClassVar[list] = []

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        gradients = [grad @ w.T, x.T @ grad]
        buffers = ctx.input_grad_buffers
        MatMul.offered.append([None if each is None else each.clone() for each in buffers])
        for place, buffer in enumerate(buffers):
            if buffer is not None:
                buffer.add_(gradients[place])
                gradients[place] = None
        return tuple(gradients)


class Double(torch.autograd.Function):
    """Returns a gradient that Python has made, and keeps it if ``kept`` is a list."""

    kept = None

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        result = grad * 2
        if Double.kept is not None:
            Double.kept.append(result)
        return result


def sum_of_uses(x, w):
    return MatMul.apply(x, w).sum() + x.exp().sum() + w.exp().sum()


def inputs_are_leaves(x, w):
    sum_of_uses(x, w).backward()


def inputs_are_results(x, w):
    sum_of_uses(x * 2, w * 3).backward()


def three_uses(x, w):
    h = x * 2
    loss = MatMul.apply(h, w).sum() + MatMul.apply(h.clone(), w).sum()
    (loss + MatMul.apply(h, w).sum() + h.exp().sum()).backward()


def gradient_passed_through(x, w):
    h = x * 2
    (MatMul.apply(h, w).sum() + (h + 1).exp().sum() + w.view(9).exp().sum()).backward()


def gradient_of_python(x, w):
    h = x * 2
    (MatMul.apply(h, w).sum() + Double.apply(h).exp().sum() + w.exp().sum()).backward()


def gradient_that_the_program_keeps(x, w):
    Double.kept = []
    try:
        gradient_of_python(x, w)
    finally:
        Double.kept = None


def hooks_of_tensors(x, w):
    h = x * 2
    h.register_hook(lambda grad: grad * 2)
    shifted = h + 1
    shifted.register_hook(lambda _: None)
    (MatMul.apply(h, w).sum() + shifted.exp().sum() + w.exp().sum()).backward()


def hook_after_another_node(x, w):
    h = x * 2
    shifted = h + 1
    shifted.grad_fn.register_hook(lambda *_: None)
    (MatMul.apply(h, w).sum() + shifted.exp().sum() + w.exp().sum()).backward()


def hook_after_its_own_node(x, w):
    y = MatMul.apply(x * 2, w)
    y.grad_fn.register_hook(lambda *_: None).remove()
    (y.sum() + w.exp().sum()).backward()


def checkpointed(x, w):
    h = x * 2
    y = checkpoint(sum_of_uses, h, w, use_reentrant=False)
    (y + (h + 1).exp().sum() + w.exp().sum()).backward()


def checkpointed_reentrant(x, w):
    h = x * 2
    y = checkpoint(sum_of_uses, h, w, use_reentrant=True)
    (y + (h + 1).exp().sum() + w.exp().sum()).backward()


def two_steps(x, w):
    for _ in range(2):
        sum_of_uses(x, w).backward()


def kept_graph(x, w):
    loss = sum_of_uses(x * 2, w)
    loss.backward(retain_graph=True)
    loss.backward()


def gradients_of_results(x, w):
    h = x * 2
    torch.autograd.grad(sum_of_uses(h, w), (h, w, x))


def create_graph(x, w):
    torch.autograd.grad(sum_of_uses(x * 2, w), (x, w), create_graph=True)


PROGRAMS = [
    inputs_are_leaves, inputs_are_results, three_uses, gradient_passed_through,
    gradient_of_python, gradient_that_the_program_keeps, hooks_of_tensors,
    hook_after_another_node, hook_after_its_own_node, checkpointed, checkpointed_reentrant,
    two_steps, kept_graph, gradients_of_results, create_graph,
]  # fmt: skip

SAME_OFFERS = [
    {"engine": "native"},
    {"engine": "native", "fingerprints": True},
    {"engine": "native", "norms": True},
    {"engine": "native", "keep_steps": 1},
    {"engine": "native", "device_time": True},
    {"engine": "native", "ops": False},
    {"engine": "python", "ops": False},
    {"engine": "python", "ops": False, "norms": True},
    {"engine": "python", "ops": False, "annotate_memory": True},
]
NO_OFFERS = [
    {"engine": "python"},
    {"fingerprints": True, "engine": "python"},
    {"annotate_memory": True},
    {"break_on": "not-finite"},
    {"verify": True},
]


def run(program, options=None):
    """Return the offered buffers, gradients and error of a program, and its trace."""
    MatMul.offered = []
    x = (torch.arange(6.0).reshape(2, 3) / 5).requires_grad_()
    w = (torch.arange(9.0).reshape(3, 3) / 7).requires_grad_()
    error, trace = None, None
    try:
        if options is None:
            program(x, w)
        else:
            with autogradviz.record(**options) as trace:
                program(x, w)
    except RuntimeError as raised:
        error = str(raised)
    return MatMul.offered, [x.grad, w.grad], error, trace


def is_equal(first, second):
    if isinstance(first, list):
        return len(first) == len(second) and all(map(is_equal, first, second))
    return first is second if first is None or second is None else torch.equal(first, second)


def name_of(options):
    return " ".join(f"{name}={value}" for name, value in options.items())


@pytest.mark.usefixtures("native")
@pytest.mark.parametrize("options", SAME_OFFERS, ids=name_of)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_same_buffers_are_offered_while_recording(program, options):
    plain_offers, plain_gradients, plain_error, _ = run(program)
    offers, gradients, error, trace = run(program, options)
    assert is_equal(offers, plain_offers)
    assert is_equal(gradients, plain_gradients)
    assert error == plain_error
    assert [event.message for event in trace.log.of(RecorderFailed)] == []
    assert [finding for finding in trace.diagnose() if finding.confidence == "certain"] == []


@pytest.mark.parametrize("options", NO_OFFERS, ids=name_of)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_python_engine_with_operators_takes_the_other_branch(program, options):
    _, plain_gradients, plain_error, _ = run(program)
    offers, gradients, error, trace = run(program, options)
    assert {each is None for found in offers for each in found} <= {True}
    assert error == plain_error
    assert is_equal(gradients, plain_gradients)  # the additions are the same ones
    assert [event.message for event in trace.log.of(RecorderFailed)] == []
    if options.get("verify") and error is None:
        certificate = trace.certificate()
        assert (certificate.failed, certificate.not_checked) == ((), ())


@pytest.mark.parametrize("options", [*NO_OFFERS, {"engine": "native"}], ids=name_of)
@pytest.mark.usefixtures("native")
def test_graph_of_a_recording_offers_buffers_afterwards(options):
    def graph(x, w):
        return sum_of_uses(x * 2, w)

    x, w = torch.ones(2, 3, requires_grad=True), torch.ones(3, 3, requires_grad=True)
    with autogradviz.record(**options):
        loss = graph(x, w)
        loss.backward(retain_graph=True)
    MatMul.offered = []
    loss.backward()
    (offered,) = MatMul.offered
    assert all(buffer is not None for buffer in offered)


@pytest.mark.usefixtures("native")
def test_offered_buffers_are_recorded_with_node_and_line():
    *_, trace = run(inputs_are_results, {"engine": "native"})
    (event,) = trace.log.of(GradientBuffersOffered)
    node = trace.analysis.graph.nodes[event.node_id]
    shapes = [trace.analysis.tensors[tensor_id].shape for tensor_id in event.tensor_ids]
    assert (node.name, event.backward_id, shapes) == ("MatMulBackward", 0, [(2, 3), (3, 3)])
    frame = trace.analysis.location(event.stack_id)
    assert frame.text == "buffers = ctx.input_grad_buffers"
