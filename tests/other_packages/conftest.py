"""Tests with packages that are too large for `make test`; `make test-integrations` runs them."""

import os

import pytest
import torch

import autogradviz

if os.environ.get("AUTOGRADVIZ_TEST_INTEGRATIONS") != "1":
    collect_ignore_glob = ["test_*.py"]


class Net(torch.nn.Module):
    """A network whose forward writes a saved tensor, with ``writes=True``."""

    def __init__(self, *, writes=False):
        super().__init__()
        self.up = torch.nn.Linear(3, 4)
        self.down = torch.nn.Linear(4, 1)
        self.writes = writes

    def forward(self, x):
        hidden = self.up(x).exp()
        out = self.down(hidden)
        if self.writes:
            hidden.mul_(2)
        return out


@pytest.fixture
def net():
    return Net


@pytest.fixture
def failing_trace():
    torch.manual_seed(0)
    model = Net(writes=True)
    try:
        with autogradviz.record(model) as trace:
            model(torch.ones(2, 3)).sum().backward()
    except RuntimeError:
        pass
    return trace
