"""The certificate of samples of PyTorch's operators: each gradient is verified, and unchanged."""

import warnings

import pytest
import torch
from test_operators import (
    DIFFERENTIABLE,
    leaves_in,
    name_of,
    no_search_for_a_test_case,  # noqa: F401 - a fixture
    outputs_and_gradients,
    samples_of,
)
from test_results_unchanged import flat, same

import autogradviz
from autogradviz.events import RecorderFailed

SAMPLES = 2

_CONJUGATED = "its operator makes CloneBackward0 when it runs again"
"""PyTorch copies a lazily conjugated argument after it has created the node."""
_COPIED = "no recorded operator made it"
"""PyTorch copies what ``clamp_min_`` writes after it has created the node."""
_OWN = "the derivative of torch_nn::_linear_cross_entropy_batch_chunked{} is the program's own"
NOT_VERIFIED = {
    "sgn": {"zero tensors"},  # its derivative has no memory
    "as_strided.partial_views": {"its operator may read memory outside of its input"},
    "fft.hfft": {_CONJUGATED},
    "fft.hfft2": {_CONJUGATED},
    "fft.hfftn": {_CONJUGATED},
    "fft.ifft": {_CONJUGATED},
    "fft.ihfft": {_CONJUGATED},
    "nn.functional.cosine_embedding_loss": {_COPIED},
    "nn.functional.hinge_embedding_loss": {_COPIED},
    "nn.functional.linear_cross_entropy.chunked": {_OWN.format("")},
    "nn.functional.linear_cross_entropy.chunked_none": {_OWN.format("_no_reduction")},
    "nn.functional.margin_ranking_loss": {_COPIED},
    "sparse.mm.reduce": {"sparse tensors"},
}
"""The operators with a node that cannot be verified, and the reasons."""
NO_NODE = {"normal.number_mean", "sparse.sampled_addmm", "to_sparse"}
"""The operators whose samples have no gradient, or a sparse one."""


def step(op, sample):
    """Return outputs and gradients of an operator."""
    torch.manual_seed(0)
    leaves = [each for each in leaves_in([sample.input, *sample.args, *sample.kwargs.values()])
              if each.requires_grad]  # fmt: skip
    return flat(outputs_and_gradients(op, sample, leaves, twice=False))


def equal_or_undefined(op, sample, plain, verified):
    """Return whether results are equal; those of uninitialized memory never are."""
    return same(plain, verified) or not same(plain, step(op, sample))


@pytest.mark.one_in(6, reason="the others are tested in continuous integration")
@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=name_of)
def test_certificate_of_an_operator_holds(op):
    reasons, nodes = set(), 0
    for sample in samples_of(op, torch.float64, SAMPLES):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                plain = step(op, sample)
            except (RuntimeError, NotImplementedError, ImportError) as error:
                pytest.skip(f"it raises without a recording, too: {error}")
            with autogradviz.record(verify=True) as trace:
                verified = step(op, sample)
            assert equal_or_undefined(op, sample, plain, verified)
        assert [event.message for event in trace.log.of(RecorderFailed)] == []
        certificate = trace.certificate()
        assert certificate.ok, str(certificate)
        reasons |= {reason for _, reason, _ in certificate.not_checked}
        nodes += certificate.checked["node"]
    assert reasons == NOT_VERIFIED.get(name_of(op), set())
    assert bool(nodes) == (name_of(op) not in NO_NODE)


def test_most_operators_of_the_database_are_verified():
    whole = {op.name for op in DIFFERENTIABLE if name_of(op) not in {*NOT_VERIFIED, *NO_NODE}}
    assert len(whole) > 450
