"""Law 1 over PyTorch's own operator database: one sample of every differentiable operator."""

import warnings

import pytest
import torch
from test_harmless import flat, same
from torch.testing._internal.common_methods_invocations import op_db

import autogradviz
from autogradviz.events import RecorderFailed

DIFFERENTIABLE = [op for op in op_db if op.supports_autograd and torch.float64 in op.dtypes]


def name_of(op):
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def run(op, sample, *, recorded):
    """Return outputs, gradients and versions of one call, or what it raised."""
    torch.manual_seed(0)
    tensors = [sample.input, *sample.args, *sample.kwargs.values()]
    leaves = [t for t in _leaves(tensors) if t.requires_grad]
    try:
        if recorded:
            with autogradviz.record() as trace:
                result = _forward_and_backward(op, sample, leaves)
            failed = [f"{e.seam}: {e.message}" for e in trace.log.of(RecorderFailed)]
            assert failed == []
        else:
            result = _forward_and_backward(op, sample, leaves)
    except AssertionError:
        raise
    except Exception as error:
        return type(error).__name__, str(error)
    return flat(result)


def _forward_and_backward(op, sample, leaves):
    output = op(sample.input, *sample.args, **sample.kwargs)
    outputs = [t for t in _leaves([output]) if t.requires_grad]
    total = sum(t.abs().sum() for t in outputs if t.layout == torch.strided)
    grads = None
    if isinstance(total, torch.Tensor) and total.requires_grad and leaves:
        grads = torch.autograd.grad(total, leaves, allow_unused=True)
    return output, grads, [t._version for t in leaves]


def _leaves(value):
    for part in value:
        if isinstance(part, torch.Tensor):
            yield part
        elif isinstance(part, (list, tuple)):
            yield from _leaves(part)


def first_sample(op):
    torch.manual_seed(1)
    return next(iter(op.sample_inputs("cpu", torch.float64, requires_grad=True)), None)


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=name_of)
def test_an_operator_is_the_same_when_recorded(op):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            plain = run(op, first_sample(op), recorded=False)
            again = run(op, first_sample(op), recorded=False)
        except ImportError as missing:  # a few samples need SciPy
            pytest.skip(str(missing))
        seen = run(op, first_sample(op), recorded=True)
    if not same(plain, again):  # uninitialised memory: only the shapes can be compared
        assert op.name.startswith(("empty", "new_empty"))
        return
    assert same(seen, plain)
