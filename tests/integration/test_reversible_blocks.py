"""Custom Functions that run modules again in backward, whose buffers were written in between."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import autogradviz


class Reversible(torch.autograd.Function):
    """A reversible block: backward computes the input from the output, and runs the body again."""

    @staticmethod
    def forward(ctx, x, body, *parameters):
        with torch.no_grad():
            first, second = x.chunk(2, 1)
            y = torch.cat([first + body(second), second], 1)
        ctx.body, ctx.y = body, y.detach()
        return y

    @staticmethod
    def backward(ctx, grad):
        first, second = grad.chunk(2, 1)
        with torch.enable_grad():
            x = ctx.y.chunk(2, 1)[1].detach().requires_grad_()
            out = ctx.body(x)
        grads = torch.autograd.grad(out, [x, *ctx.body.parameters()], first)
        return torch.cat([first, second + grads[0]], 1), None, *grads[1:]


class Scaled(nn.Module):
    """Divides by a running scale, which each forward in training mode updates."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 1)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x):
        self.scale.mul_(0.9).add_(0.1 * x.detach().std())
        return self.conv(x) / self.scale


def findings(body, *, calls=2):
    torch.manual_seed(0)
    stem = nn.Conv2d(1, 4, 1)
    with autogradviz.record() as trace:
        for _ in range(2):
            inputs = [stem(torch.rand(2, 1, 4, 4)) for _ in range(calls)]
            outputs = [Reversible.apply(x, body, *body.parameters()) for x in inputs]
            sum(outputs).square().mean().backward()
    return [(each.slug, each.confidence) for each in trace.diagnose() if each.confidence != "hint"]


@pytest.mark.parametrize(
    "norm",
    [
        lambda: nn.BatchNorm2d(2),
        lambda: nn.BatchNorm2d(2, affine=False, momentum=None),
        lambda: nn.InstanceNorm2d(2, affine=True, track_running_stats=True),
        lambda: nn.GroupNorm(1, 2),
    ],
)
def test_statistics_that_no_gradient_reads_are_no_finding(norm):
    assert findings(nn.Sequential(nn.Conv2d(2, 2, 1), norm(), nn.ReLU())) == []


def test_a_buffer_that_the_result_reads_is_a_finding():
    assert ("ctx-attribute-written", "certain") in findings(Scaled())


class Logged(torch.autograd.Function):
    """Looks at a statistic in backward."""

    @staticmethod
    def forward(ctx, x, statistic):
        ctx.statistic = statistic
        return x * statistic

    @staticmethod
    def backward(ctx, grad):
        return Logged.use(ctx, grad), None


def scaled_by_statistic(ctx, grad):
    return grad * ctx.statistic


def logged(ctx, grad):
    assert ctx.statistic.mean().item() > 0
    ctx.statistic.mean().gt(0)
    return grad * 2


@pytest.mark.parametrize(
    ("use", "found"), [(scaled_by_statistic, ["ctx-attribute-written"]), (logged, [])]
)
def test_a_value_counts_if_it_enters_the_gradient(use, found, monkeypatch):
    monkeypatch.setattr(Logged, "use", use, raising=False)
    x, statistic = torch.rand(3, requires_grad=True), torch.ones(3)
    with autogradviz.record() as trace:
        y = Logged.apply(x * 1, statistic)
        statistic.mul_(2)
        y.sum().backward()
    assert [each.slug for each in trace.diagnose() if each.confidence == "certain"] == found
