"""The certificate of samples of PyTorch's operators: each gradient is verified."""

import warnings

import pytest
import torch
from test_operators import (
    DIFFERENTIABLE,
    name_of,
    no_search_for_a_test_case,  # noqa: F401 - a fixture
    samples_of,
)
from test_results_unchanged import flat

import autogradviz
from autogradviz.events import RecorderFailed

SAMPLES = 2


def tensors_of(value):
    return [each for each in flat(value) if isinstance(each, torch.Tensor)]


def step(op, sample):
    """Run an operator and its backward; return whether it has one."""
    outputs = tensors_of(op(sample.input, *sample.args, **sample.kwargs))
    kept = [each for each in outputs if each.requires_grad and each.layout == torch.strided]
    total = sum(each.abs().sum() for each in kept)
    if not kept:
        return False
    total.backward()
    return True


@pytest.mark.one_in(6, reason="the others are tested in continuous integration")
@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=name_of)
def test_certificate_of_an_operator_holds(op):
    for sample in samples_of(op, torch.float64, SAMPLES):
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with autogradviz.record(verify=True) as trace:
                    has_gradient = step(op, sample)
            except (RuntimeError, NotImplementedError, ImportError) as error:
                pytest.skip(f"it raises without a recording, too: {error}")
        assert [event.message for event in trace.log.of(RecorderFailed)] == []
        certificate = trace.certificate()
        assert certificate.ok, str(certificate)
        assert not has_gradient or certificate.checked
