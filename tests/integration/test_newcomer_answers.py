"""Answers to questions of people who record their first programs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import autogradviz


def normalized(z):
    array = z.detach().numpy()
    return torch.from_numpy(array / np.linalg.norm(array))


def doubled(z):
    array = np.asarray(z.detach())
    return torch.as_tensor(array * 2)


def detached(z):
    return z.detach() * 2


STAY = "# stay in torch: numpy has no gradient"


@pytest.mark.parametrize(
    ("function", "stays"), [(normalized, True), (doubled, True), (detached, False)]
)
def test_detached_value_that_goes_to_numpy_is_not_fixed_by_leaving_out_detach(function, stays):
    layer, scale = torch.nn.Linear(3, 3), torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([*layer.parameters(), scale], lr=0.1)
    with autogradviz.record() as trace:
        for _ in range(2):
            optimizer.zero_grad()
            (function(layer(torch.rand(2, 3))) * scale).sum().backward()
            optimizer.step()
    [finding] = trace.diagnose()
    assert finding.slug == "gradient-missing"
    assert (finding.fix == STAY) == stays
    assert ("the conversion raises" in " ".join(finding.explanation.split())) == stays
    assert (trace.audit()[0].fix == STAY) == stays


@pytest.mark.parametrize("epochs", [1, 2, 4])
def test_gradients_that_are_cleared_once_per_epoch_are_found_however_much_is_recorded(epochs):
    layer = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    with autogradviz.record() as trace:
        for _ in range(epochs):
            optimizer.zero_grad()
            for _ in range(4):
                layer(torch.rand(2, 3)).sum().backward()
                optimizer.step()
    [finding] = trace.diagnose()
    assert finding.slug == "gradients-not-cleared"
    assert finding.culprit.text == "optimizer.step()"


def test_why_of_a_loss_that_is_not_finite_does_not_repeat_the_question():
    layer = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    x = torch.rand(4, 3)
    x[0] = 0
    torch.nn.init.zeros_(layer.bias)
    with autogradviz.record() as trace:
        for _ in range(3):
            optimizer.zero_grad()
            distance = torch.sqrt(layer(x).pow(2).sum(1))
            same = distance * distance.detach()
            (same * 0.5).mean().backward()
            optimizer.step()
    answer = trace.why("loss")
    assert answer.question == "the value is NaN or infinite"
    assert answer.steps[-1].statement.startswith("distance = torch.sqrt")
    assert answer.alternatives == ()
    assert "fingerprints=True" in answer.to_record
