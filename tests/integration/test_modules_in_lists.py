"""Modules in lists and dicts, which no module registers: the statement that put them there."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import autogradviz


class Adapter(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.down(x)


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.adapters = [Adapter() for _ in range(2)]

    def forward(self, x):
        x = self.stem(x)
        for adapter in self.adapters:
            x = adapter(x)
        return x


class Appended(Listed):
    def __init__(self):
        nn.Module.__init__(self)
        self.stem = nn.Linear(4, 4)
        self.adapters = []
        for _ in range(2):
            adapter = Adapter()
            self.adapters.append(adapter)


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 4)
        parts = {}
        parts["a"] = Adapter()
        self.by_name = parts

    def forward(self, x):
        return self.by_name["a"](self.stem(x))


CASES = [
    (Listed, "self.adapters = [Adapter() for _ in range(2)]", "ModuleList", "adapters"),
    (Appended, "self.adapters.append(adapter)", "ModuleList", "adapters"),
    (Named, "self.by_name = parts", "ModuleDict", "by_name"),
]


def train(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.rand(2, 4)).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize(("kind", "statement", "container", "name"), CASES)
def test_statement_that_puts_modules_in_a_container_is_named(
    kind, statement, container, name, recorded
):
    if recorded:
        with autogradviz.record() as trace:
            train(kind())
    else:
        model = kind()
        with autogradviz.record() as trace:
            train(model)
    [finding] = trace.diagnose()
    assert finding.slug == "parameter-not-updated"
    assert finding.culprit.text == statement
    _, is_assigned, value = finding.culprit.text.partition(f"self.{name} = ")
    kept = value if is_assigned else f"self.{name}"
    assert finding.fix.startswith(f"self.{name} = torch.nn.{container}({kept})")
    assert statement in {entry.statement for entry in trace.audit()}
