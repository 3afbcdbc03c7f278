"""Gradients of exactly zero: the factor that is zero, and what is no finding."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

import autogradviz
from autogradviz.events import ParameterNormRead

X = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))


def trained(model, loss, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autogradviz.record(model, **options) as trace:
        for _ in range(2):
            optimizer.zero_grad()
            loss(model).backward()
            optimizer.step()
    return trace


def found(trace):
    return [
        (each.culprit.text, each.title)
        for each in trace.diagnose()
        if each.slug == "gradient-all-zero"
    ]


class LowRank(nn.Module):
    def __init__(self, *, first=0.0):
        super().__init__()
        self.down = nn.Parameter(torch.full((4, 2), first))
        self.up = nn.Parameter(torch.zeros(2, 4))

    def forward(self, x):
        hidden = x @ self.down
        return x + hidden @ self.up


def dead_relu():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    nn.init.constant_(model[0].bias, -100.0)
    return model


def of_equal_advantages(model):
    reward = torch.ones(3)
    advantage = reward - reward.mean()
    return -(advantage * model(X).log_softmax(-1)[:, 0]).mean()


def of_empty_mask(model):
    mask = torch.zeros(3, 1)
    return (model(X) * mask).sum()


def squared(model):
    return model(X).square().mean()


def test_both_matrices_of_a_low_rank_update_are_zero():
    [(line, title), *_] = found(trained(LowRank(), squared, norms=True))
    assert line == "hidden = x @ self.down"
    assert "2 parameters" in title or "up" in title


class Merged(LowRank):
    def forward(self, x):
        update = self.down @ self.up
        return x + x @ update


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.gate = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4))

    def forward(self, x):
        return x + self.gate * (x * self.scale)


@pytest.mark.parametrize("options", [{}, {"keep_steps": 1}, {"fingerprints": True}])
@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (LowRank, "return x + hidden @ self.up"),
        (Merged, "update = self.down @ self.up"),
        (Gated, "return x + self.gate * (x * self.scale)"),
    ],
)
def test_the_product_of_zero_parameters_is_named_without_norms_of_ops(kind, line, options):
    model = nn.Sequential(kind(), nn.Linear(4, 2))  # the last layer gets a gradient
    [(culprit, title)] = found(trained(model, squared, **options))
    assert culprit == line
    assert title.startswith("2 parameters ")


@pytest.mark.parametrize("options", [{}, {"norms": True}])
def test_parameters_of_which_one_starts_from_zero_get_no_finding_without_norms(options):
    model = nn.Sequential(LowRank(first=0.1), nn.Linear(4, 2))
    assert found(trained(model, squared, **options)) == []


def test_a_dead_unit_is_no_product_of_zero_parameters():
    model = dead_relu()
    nn.init.zeros_(model[2].weight)
    (finding,) = trained(model, squared).diagnose()
    assert "The result of relu is zero" in finding.explanation


def test_values_of_leaves_are_read_if_their_gradient_is_zero_at_the_end():
    trace = trained(nn.Sequential(LowRank(), nn.Linear(4, 2)), squared)
    events = trace.log.of(ParameterNormRead)
    assert [(trace.analysis.leaf_name(e.tensor_id), e.norm) for e in events] == [
        ("0.down", 0.0),
        ("0.up", 0.0),
    ]
    assert list(trained(nn.Linear(4, 2), squared).log.of(ParameterNormRead)) == []


def test_one_zero_matrix_of_a_low_rank_update_is_no_finding():
    assert found(trained(LowRank(first=0.1), squared, norms=True)) == []


def test_what_is_behind_a_dead_relu_is_named_and_the_bias_after_it_is_not():
    trace = trained(dead_relu(), squared, norms=True)
    [finding] = [each for each in trace.diagnose() if each.slug == "gradient-all-zero"]
    assert "3 parameters" in finding.title
    assert "2.bias" not in finding.title
    assert trace.why("0.weight").question == "the gradient is zero"
    assert trace.why("0.weight").steps[-1].location == finding.culprit


@pytest.mark.parametrize(
    ("loss", "line"),
    [
        (of_equal_advantages, "advantage = reward - reward.mean()"),
        (of_empty_mask, "mask = torch.zeros(3, 1)"),
    ],
)
def test_the_line_that_makes_the_factor_is_named(loss, line):
    assert [each for each, _ in found(trained(nn.Linear(4, 2), loss, norms=True))] == [line]


def test_without_norms_of_ops_gradients_that_are_all_zero_are_named_at_the_loss():
    [(line, title)] = found(trained(nn.Linear(4, 2), of_empty_mask))
    assert line == "return (model(X) * mask).sum()"
    assert title == "all 2 parameters that got a gradient got exactly zero"


def test_parameters_that_are_zero_and_multiplied_are_named_without_norms_of_ops():
    [(line, title)] = found(trained(LowRank(), squared))
    assert line == "return x + hidden @ self.up"
    assert title == (
        "2 parameters (100 % of the elements) get a gradient of exactly zero: down, up"
    )
    biased = nn.Linear(4, 2)
    nn.init.zeros_(biased.bias)
    [(_, title)] = found(trained(biased, of_empty_mask))
    assert title == "all 2 parameters that got a gradient got exactly zero"


@pytest.mark.parametrize("norms", [False, True])
def test_a_step_of_the_optimizer_is_not_what_makes_a_parameter_zero(norms):
    model = LowRank()
    optimizer = torch.optim.AdamW(model.parameters())
    with autogradviz.record(model, norms=norms) as trace:
        for _ in range(3):
            optimizer.zero_grad()
            squared(model).backward()
            optimizer.step()
    [(line, title), *more] = found(trace)
    assert line == ("hidden = x @ self.down" if norms else "return x + hidden @ self.up")
    assert "2 parameters" in title or "down" in title
    assert {each for each, _ in more} <= {"return x + hidden @ self.up"}


@pytest.mark.parametrize("norms", [False, True])
def test_gradients_that_were_cleared_in_place_are_not_zero_gradients(norms):
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autogradviz.record(model, norms=norms) as trace:
        for _ in range(2):
            squared(model).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
    assert found(trace) == []


class Units(nn.Module):
    def __init__(self, product):
        super().__init__()
        make = nn.Linear if product == "linear" else partial(nn.Conv1d, kernel_size=1)
        self.first, self.second = make(3, 4), make(4, 2)

    def forward(self, x):
        hidden = self.first(x)
        hidden = hidden.relu()  # <-- dead
        return self.second(hidden)


@pytest.mark.parametrize("product", ["linear", "convolution"])
def test_dead_units_are_found_without_norms_of_values(product):
    net = Units(product)
    with torch.no_grad():
        net.first.bias.fill_(-100)
    with autogradviz.record(net) as trace:
        for _ in range(2):
            net(torch.rand(5, 3) if product == "linear" else torch.rand(5, 3, 6)).sum().backward()
    (finding,) = trace.diagnose()
    assert (finding.slug, finding.confidence) == ("gradient-all-zero", "hint")
    assert finding.culprit.text == "hidden = hidden.relu()  # <-- dead"
    assert finding.title.endswith("exactly zero: first.weight, first.bias, second.weight")


def test_a_loss_that_is_multiplied_by_zero_has_no_dead_units():
    net, other = Units("linear"), nn.Linear(3, 2)
    both = nn.ModuleList([net, other])
    with autogradviz.record(both) as trace:
        x = torch.rand(5, 3)
        (other(x).sum() + 0 * net(x).sum()).backward()
    assert "relu" not in "".join(each.explanation for each in trace.diagnose())
