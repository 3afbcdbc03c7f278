"""A leaf that a step makes from a value of the model explains why its parameters get nothing."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

import autogradviz


def found(step, model, optimizer, steps=3):
    with autogradviz.record(model) as trace:
        for _ in range(steps):
            optimizer.zero_grad()
            step()
            optimizer.step()
    return [
        (each.slug, each.culprit.lineno - step.__code__.co_firstlineno) for each in trace.diagnose()
    ]


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4))
    return model, torch.optim.SGD(model.parameters(), 0.1)


def run(model, weights, x):
    return torch.func.functional_call(model, weights, x)


def test_fast_weights_that_are_detached_are_named_and_not_the_step():
    model, optimizer = network()

    def step():
        x, y = torch.randn(5, 3), torch.randn(5, 4)
        weights = dict(model.named_parameters())
        inner = F.mse_loss(run(model, weights, x), y)
        grads = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
        weights = {
            name: (w - 0.1 * g).detach().requires_grad_()
            for (name, w), g in zip(weights.items(), grads, strict=True)
        }
        F.mse_loss(run(model, weights, x), y).backward()

    assert found(step, model, optimizer) == [("gradient-cut", 6)]


def test_weights_of_which_some_are_detached_are_named():
    body, head = nn.Linear(3, 8, bias=False), nn.Linear(8, 4)
    model = nn.ModuleList([body, head])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step():
        x, y = torch.randn(5, 3), torch.randn(5, 4)
        inner = F.mse_loss(head(F.linear(x, body.weight)), y)
        (g,) = torch.autograd.grad(inner, [body.weight], create_graph=True)
        fast = (body.weight - 0.1 * g).clone().detach()
        fast.requires_grad_()
        F.mse_loss(head(F.linear(x, fast)), y).backward()

    assert found(step, model, optimizer)[0] == ("gradient-cut", 4)


def test_first_order_steps_that_assign_the_gradients_are_correct():
    model, optimizer = network()

    def step():
        x, y = torch.randn(5, 3), torch.randn(5, 4)
        weights = dict(model.named_parameters())
        for _ in range(2):
            grads = torch.autograd.grad(
                F.mse_loss(run(model, weights, x), y), list(weights.values())
            )
            weights = {
                name: (w - 0.1 * g).detach().requires_grad_()
                for (name, w), g in zip(weights.items(), grads, strict=True)
            }
        outer = F.mse_loss(run(model, weights, x), y)
        grads = torch.autograd.grad(outer, list(weights.values()))
        for parameter, gradient in zip(model.parameters(), grads, strict=True):
            parameter.grad = gradient

    assert found(step, model, optimizer) == []


def test_fast_weights_with_their_graph_are_correct():
    model, optimizer = network()

    def step():
        x, y = torch.randn(5, 3), torch.randn(5, 4)
        weights = dict(model.named_parameters())
        inner = F.mse_loss(run(model, weights, x), y)
        grads = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
        weights = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), grads, strict=True)}
        F.mse_loss(run(model, weights, x), y).backward()

    assert found(step, model, optimizer) == []


def test_loss_of_integers_that_is_made_a_leaf_names_the_integers():
    model, optimizer = network()

    def step():
        x, y = torch.randn(5, 3), torch.randint(0, 4, (5,))
        scores = model(x)
        chosen = scores.argmax(-1).float()
        loss = F.mse_loss(chosen, y.float())
        loss.requires_grad_().backward()

    assert found(step, model, optimizer) == [("gradient-missing", 3)]


def test_result_of_integers_that_is_made_a_leaf_names_the_integers():
    model, optimizer = network()

    def step():
        x, y = torch.randn(5, 3), torch.randint(0, 2, (5, 4))
        hard = (model(x) > 0).float()
        hard.requires_grad_()
        F.l1_loss(hard, y.float()).backward()

    assert found(step, model, optimizer) == [("gradient-missing", 2)]


def test_leaf_of_labels_of_a_model_trained_otherwise_is_correct():
    model, optimizer = network()

    def step():
        x, y = torch.randn(5, 3), torch.randint(0, 4, (5,))
        scores = model(x)
        F.cross_entropy(scores, y).backward()
        labels = F.one_hot(scores.argmax(-1), 4).float().requires_grad_()
        labels.softmax(-1)[:, 0].sum().backward()

    assert found(step, model, optimizer) == []
