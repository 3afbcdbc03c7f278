"""Unchanged results: samples of the operators and modules in the databases of PyTorch."""

import itertools
import random
import warnings

import pytest
import torch
from test_results_unchanged import flat, same
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.opinfo import core

import autogradviz
from autogradviz.events import RecorderFailed

DIFFERENTIABLE = [op for op in op_db if op.supports_autograd and torch.float64 in op.dtypes]
TRIES = 20
SAMPLES = 20
DRAWN = 3
COMPLEX = [op for op in DIFFERENTIABLE if torch.complex128 in op.dtypes]


@pytest.fixture(autouse=True)
def no_search_for_a_test_case(monkeypatch):
    """Skip the search of the stack for a ``unittest.TestCase``: there is none."""
    for module in (common_utils, core):
        monkeypatch.setattr(module, "extract_test_fn", lambda: None)


def name_of(op):
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def run(op, sample, *, recorded, twice=False):
    """Return outputs, gradients and versions of one call, or its exception.

    With ``twice``, the gradients are differentiated too.
    """
    torch.manual_seed(0)
    tensors = [sample.input, *sample.args, *sample.kwargs.values()]
    leaves = [t for t in leaves_in(tensors) if t.requires_grad]
    try:
        if recorded:
            with autogradviz.record() as trace:
                result = outputs_and_gradients(op, sample, leaves, twice=twice)
            failed = [f"{e.hook_point}: {e.message}" for e in trace.log.of(RecorderFailed)]
            assert failed == []
        else:
            result = outputs_and_gradients(op, sample, leaves, twice=twice)
    except AssertionError:
        raise
    except Exception as error:
        return type(error).__name__, str(error)
    return flat(result)


def outputs_and_gradients(op, sample, leaves, *, twice):
    output = op(sample.input, *sample.args, **sample.kwargs)
    outputs = [t for t in leaves_in([output]) if t.requires_grad]
    total = sum(t.abs().sum() for t in outputs if t.layout == torch.strided)
    before = [t._version for t in leaves]
    grads = second = None
    if isinstance(total, torch.Tensor) and total.requires_grad and leaves:
        grads = torch.autograd.grad(total, leaves, allow_unused=True, create_graph=twice)
        again = [g.abs().sum() for g in grads if g is not None and g.requires_grad]
        if twice and again:
            second = torch.autograd.grad(sum(again), leaves, allow_unused=True)
    return output, grads, second, [t._version - v for t, v in zip(leaves, before, strict=True)]


def leaves_in(value):
    for part in value:
        if isinstance(part, torch.Tensor):
            yield part
        elif isinstance(part, (list, tuple)):
            yield from leaves_in(part)
        elif isinstance(part, dict):
            yield from leaves_in(part.values())


def samples_of(op, dtype, count):
    """Return the first samples of an operator; a few operators need SciPy."""
    torch.manual_seed(1)
    return list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=True), count))


def recorded_like_plain(op, sample, *, twice=False):
    """Return whether a recorded call gives the plain result; ``None`` if plain calls differ."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            plain = run(op, sample, recorded=False, twice=twice)
            again = run(op, sample, recorded=False, twice=twice)
        except ImportError as missing:
            pytest.skip(str(missing))
        if not same(plain, again):
            return None
        # The last bits of a few LAPACK routines depend on the alignment of their operands.
        return any(same(run(op, sample, recorded=True, twice=twice), plain) for _ in range(TRIES))


@pytest.mark.one_in(4, reason="calls each operator four times", in_ci=1)
@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=name_of)
def test_operator_result_is_unchanged_by_recording(op):
    for sample in samples_of(op, torch.float64, 1):
        held = recorded_like_plain(op, sample)
        if held is None:  # uninitialized memory: only the shapes can be compared
            assert op.name.startswith(("empty", "new_empty"))
        else:
            assert held


@pytest.mark.one_in(16, reason="the real operators are all tested", in_ci=4)
@pytest.mark.parametrize("op", COMPLEX, ids=name_of)
def test_complex_operator_result_is_unchanged_by_recording(op):
    samples = samples_of(op, torch.complex128, SAMPLES)
    drawn = random.Random(name_of(op)).sample(samples, min(len(samples), DRAWN))
    assert [sample for sample in drawn if recorded_like_plain(op, sample) is False] == []


@pytest.mark.one_in(16, reason="first derivatives are all tested", in_ci=4)
@pytest.mark.parametrize("op", [op for op in DIFFERENTIABLE if op.supports_gradgrad], ids=name_of)
def test_double_backward_is_unchanged_by_recording(op):
    (sample,) = samples_of(op, torch.float64, 1)
    assert recorded_like_plain(op, sample, twice=True) is not False


@pytest.mark.one_in(8, reason="the operators out of place are all tested", in_ci=4)
@pytest.mark.parametrize("op", [op for op in DIFFERENTIABLE if op.inplace_variant], ids=name_of)
def test_operator_in_place_is_unchanged_by_recording(op):
    def in_place(value, *args, **kwargs):
        copies = [each.clone() for each in leaves_in([value])]
        return op.inplace_variant(copies if isinstance(value, list) else copies[0], *args, **kwargs)

    (sample,) = samples_of(op, torch.float64, 1)
    assert recorded_like_plain(in_place, sample) is not False


@pytest.mark.one_in(8, reason="modules consist of operators", in_ci=4)
@pytest.mark.parametrize("info", module_db, ids=lambda info: info.name)
def test_module_is_unchanged_by_recording(info):
    inputs = info.module_inputs_func(
        info, device="cpu", dtype=torch.float64, requires_grad=True, training=True
    )
    for each in itertools.islice(inputs, DRAWN):
        made, given = each.constructor_input, each.forward_input
        module = info.module_cls(*made.args, **made.kwargs).double()

        def call(parameters, *args, module=module, **kwargs):
            copies = {name: value.clone() for name, value in module.named_buffers()}
            values = {**parameters, **copies}
            return torch.func.functional_call(module, values, args, kwargs)

        parameters = dict(module.named_parameters())
        sample = core.SampleInput(parameters, args=given.args, kwargs=given.kwargs)
        assert recorded_like_plain(call, sample) is not False
