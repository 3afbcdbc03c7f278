"""Ranges of values that follow from the ops that made them: losses, comparisons, NaN."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import autogradviz

LABELS = torch.arange(8) % 5
TARGETS = torch.full((8, 5), 0.2)


def found(loss_of, steps=1, **options):
    """Return slug and line of each finding about a loss of a layer's results."""
    torch.manual_seed(0)
    net = nn.Linear(3, 5)
    with autogradviz.record(net, **options) as trace:
        for _ in range(steps):
            loss_of(net(torch.rand(8, 3))).backward()
    assert {each.confidence for each in trace.diagnose()} <= {"hint"}
    return [(each.slug, each.culprit and each.culprit.text) for each in trace.diagnose()]


def softmax_twice(scores):
    scores = scores.softmax(-1)
    return F.cross_entropy(scores, LABELS)


def sigmoid_twice(scores):
    scores = torch.sigmoid(scores).mean(1)
    return F.binary_cross_entropy_with_logits(scores, TARGETS[:, 0])


def likelihood_of_probabilities(scores):
    scores = scores.softmax(-1)
    return F.nll_loss(scores, LABELS)


def divergence_of_probabilities(scores):
    scores = scores.softmax(-1).mean(0)
    return F.kl_div(scores, TARGETS[0], reduction="sum")


def square_below_zero(scores):
    errors = (scores - 1).square()
    below = errors < 0
    return ((0.9 - below.float()) * errors).mean()


WRONG = {
    softmax_twice: ("loss-of-probabilities", "scores = scores.softmax(-1)"),
    sigmoid_twice: ("loss-of-probabilities", "scores = torch.sigmoid(scores).mean(1)"),
    likelihood_of_probabilities: ("loss-of-probabilities", "return F.nll_loss(scores, LABELS)"),
    divergence_of_probabilities: (
        "loss-of-probabilities", 'return F.kl_div(scores, TARGETS[0], reduction="sum")',
    ),
    square_below_zero: ("result-constant", "below = errors < 0"),
}  # fmt: skip


@pytest.mark.parametrize("work", WRONG, ids=lambda work: work.__name__)
def test_values_that_a_loss_or_a_comparison_cannot_get_are_found(work):
    assert found(work) == [WRONG[work]]


def with_temperature(scores):
    return F.cross_entropy(scores.softmax(-1) * 10, LABELS)


def differences(scores):
    return F.cross_entropy(scores.softmax(-1) - scores.sigmoid(), LABELS)


def with_logarithm(scores):
    return F.kl_div(scores.softmax(-1).log(), TARGETS, reduction="batchmean")


def likelihood(scores):
    return F.nll_loss(scores.log_softmax(-1), LABELS)


def error_below_zero(scores):
    errors = scores - 1
    return ((0.9 - (errors < 0).float()) * errors.square()).mean()


def written_since(scores):
    errors = (scores - 1).square().detach()
    errors[:, 0] = -1
    return ((0.9 - (errors < 0).float()) * scores.square()).mean()


@pytest.mark.parametrize(
    "work",
    [with_temperature, differences, with_logarithm, likelihood, error_below_zero, written_since],
)
def test_values_in_the_range_that_is_taken_are_not_reported(work):
    assert not [each for each in found(work) if each[0] in {"loss-of-probabilities",
                                                            "result-constant"}]  # fmt: skip


# --- NaN ----------------------------------------------------------------------------------------


def spread_of_one(scores):
    scores = scores[:1, :1]
    spread = scores.std()
    return scores.div(spread + 1e-8).sum()


def mean_of_none(scores):
    kept = scores[scores > 100]
    wanted = kept.mean()
    return wanted + scores.exp().mean()


def row_masked(scores):
    scores = scores.masked_fill(torch.ones(8, 5, dtype=torch.bool), -torch.inf)
    weights = scores.softmax(-1)
    return weights.square().sum() / (1e-3 + weights.sum())


def root_behind_a_square(scores):
    size = (scores - scores).pow(2).sum(-1)
    size = size.sqrt()
    return size.mean()


def guarded_root(scores):
    size = torch.sqrt(scores.square() + 1e-6)
    return torch.log(size - size).mean()


def targets_longer_than_inputs(scores):
    lengths = torch.tensor([2, 3, 2, 3, 2, 3, 2, 3])
    inputs = scores.log_softmax(-1).expand(4, 8, 5) / 2
    losses = F.ctc_loss(inputs, torch.ones(8, 3, dtype=torch.long), torch.full((8,), 4), lengths)
    return losses / 8


def masked_log_probabilities(scores):
    inputs = scores.masked_fill(torch.arange(5) > 3, -torch.inf)
    inputs = inputs.log_softmax(-1).expand(4, 8, 5)
    targets = torch.full((8, 2), 3)
    return F.ctc_loss(inputs, targets, torch.full((8,), 4), torch.full((8,), 1)) / 8


NOT_FINITE = {
    targets_longer_than_inputs: "losses = F.ctc_loss(inputs, torch.ones(8, 3, dtype=torch.long), "
    "torch.full((8,), 4), lengths)",
    masked_log_probabilities: "inputs = scores.masked_fill(torch.arange(5) > 3, -torch.inf)",
    spread_of_one: "spread = scores.std()",
    mean_of_none: "wanted = kept.mean()",
    row_masked: "weights = scores.softmax(-1)",
    root_behind_a_square: "size = size.sqrt()",
    guarded_root: "return torch.log(size - size).mean()",
}


@pytest.mark.parametrize("work", NOT_FINITE, ids=lambda work: work.__name__)
def test_the_op_that_can_give_nan_is_named_without_fingerprints(work):
    assert ("not-finite", NOT_FINITE[work]) in found(work)
