"""Regions and mistakes in the code of an installed package that the user's program calls."""

from __future__ import annotations

import importlib
import sys
import textwrap

import pytest
import torch
from torch import nn

import autogradviz

PACKAGE = '''
    """Checkpointing with a boundary at the outputs of a region."""

    import torch
    from torch.utils.checkpoint import checkpoint as torch_checkpoint


    class Boundary(torch.autograd.Function):
        @staticmethod
        def forward(ctx, output):
            ctx.save_for_backward(torch.empty((0,)))
            return output.view_as(output)

        @staticmethod
        def backward(ctx, grad):
            (_,) = ctx.saved_tensors
            return grad


    def checkpoint(region_name):
        def decorate(function):
            def wrapped(*args):
                return Boundary.apply(function(*args))

            def checkpointed(*args):
                return torch_checkpoint(wrapped, *args, use_reentrant=False)

            return checkpointed

        return decorate


    def scale(x):
        return x.mul_(2)


    def attend(x, outer):
        return outer(x) + 1
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "rematerialized.py").write_text(textwrap.dedent(PACKAGE))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "rematerialized", raising=False)
    return importlib.import_module("rematerialized")


class Block(nn.Module):
    """A layer with an effect that a recomputation repeats, if asked."""

    def __init__(self, *, counts=False):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)
        self.load = torch.zeros(4)
        self.counts = counts

    def forward(self, x):
        if self.counts:
            x = x * torch.sigmoid(self.load)
            self.load = self.load + x.detach().sum(0)
        return x + self.down(torch.relu(self.up(x)))


def train(package, *, counts=False):
    torch.manual_seed(0)
    net = nn.Sequential(Block(counts=counts), Block())
    with autogradviz.record(net) as trace:
        for _ in range(2):
            x = torch.rand(2, 4)
            for number, layer in enumerate(net):
                x = package.checkpoint(f"layers.{number}")(layer)(x)
            x.square().mean().backward()
    return trace


def test_region_has_the_name_of_the_module_that_a_package_wraps(package):
    regions = train(package).checkpoints()
    assert [(region.function, region.module) for region in regions[:2]] == [
        ("Block.forward", "0"),
        ("Block.forward", "1"),
    ]


def test_formula_of_a_package_is_no_finding(package):
    trace = train(package)
    assert trace.diagnose() == []
    assert [entry.mechanism for entry in trace.audit()] == ["change"]


def test_mistake_in_a_region_of_a_package_names_the_line_of_the_user(package):
    finding = train(package, counts=True).diagnose()[0]
    assert finding.slug == "checkpoint-different-values"
    assert finding.culprit.text == "self.load = self.load + x.detach().sum(0)"


def test_line_of_the_user_is_before_the_line_of_the_package(package):
    w = torch.rand(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="inplace"), autogradviz.record() as trace:
        y = w.exp()
        z = package.scale(y)
        z.sum().backward()
    (finding,) = trace.diagnose()
    assert finding.slug == "saved-tensor-mutated"
    assert (finding.culprit.filename, finding.culprit.text) == (__file__, "z = package.scale(y)")
    assert finding.explanation.startswith("This line called installed code")
    assert "return x.mul_(2)" in finding.explanation


def test_line_of_the_user_that_a_package_calls_stays(package):
    def outer(x):
        return x.mul_(2)

    w = torch.rand(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="inplace"), autogradviz.record() as trace:
        package.attend(w.exp(), outer).sum().backward()
    (finding,) = trace.diagnose()
    assert finding.culprit.text == "return x.mul_(2)"
