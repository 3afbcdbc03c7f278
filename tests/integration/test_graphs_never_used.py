"""Forwards whose graph no backward used: evaluations with gradients enabled."""

from __future__ import annotations

import pytest
import torch

import autogradviz


@pytest.fixture(params=["python", "native"])
def engine(request):
    if request.param == "native":
        request.getfixturevalue("native")
    return request.param


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(3, 256), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(256, 1)
    )


def forward(model, batch=512):
    return model(torch.rand(batch, 3))


def trained(model, epochs, evaluate, record):
    """Train for some epochs, evaluate after each, and return the trace."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with record(model) as trace:
        for _ in range(epochs):
            optimizer.zero_grad()
            forward(model).square().mean().backward()
            optimizer.step()
            evaluate(model)
    return trace


def found(evaluate, engine="python", epochs=3):
    """Return the findings of this kind of a training with an evaluation after each step."""

    def record(model):
        return autogradviz.record(model, engine=engine)

    trace = trained(net(), epochs, evaluate, record)
    return [each for each in trace.diagnose() if each.slug == "graph-unused"]


def in_eval_mode(model):
    model.eval()
    loss = model(torch.rand(512, 3)).square().mean()
    model.train()
    return loss.item()


def test_an_evaluation_with_gradients_is_a_hint_with_its_line_its_bytes_and_no_grad(engine):
    [finding] = found(in_eval_mode, engine)
    assert finding.confidence == "hint"
    assert finding.culprit.text == "loss = model(torch.rand(512, 3)).square().mean()"
    assert finding.title == (
        "3 forwards built a graph that no backward used, which kept about 524 kB each time"
    )
    assert finding.fix == (
        "with torch.no_grad():\n    loss = model(torch.rand(512, 3)).square().mean()"
    )


def test_the_fix_of_a_finding_removes_it(engine):
    def evaluate(model):
        with torch.no_grad():
            in_eval_mode(model)

    assert found(evaluate, engine) == []


def test_an_evaluation_that_calls_parts_of_a_model_is_one_finding():
    def evaluate(model):
        hidden = model[0](torch.rand(4, 3))
        model[3](hidden.relu()).sum().item()

    [finding] = found(evaluate)
    assert finding.culprit.text == "hidden = model[0](torch.rand(4, 3))"


def test_a_single_forward_says_nothing():
    def evaluate(model):
        if not done:
            done.append(in_eval_mode(model))

    done = []
    assert found(evaluate) == []


def test_forwards_without_any_backward_say_nothing():
    model = net()
    with autogradviz.record(model) as trace:
        for _ in range(3):
            in_eval_mode(model)
    assert list(trace.diagnose()) == []


def test_a_result_that_a_later_loss_reads_is_no_waste(engine):
    def evaluate(model):
        fake = forward(model, 4)
        loss = model(fake.detach().repeat(1, 3)).square().mean()
        loss.backward()

    assert found(evaluate, engine) == []


def test_a_call_of_which_some_runs_have_a_backward_says_nothing():
    def evaluate(model):
        loss = forward(model).mean()
        runs.append(None)
        if len(runs) == 2:
            loss.backward()

    runs = []
    assert found(evaluate, epochs=4) == []


def test_a_graph_that_is_alive_when_the_recording_ends_may_be_used_later():
    losses = []
    assert found(lambda model: losses.append(in_eval_mode_with_graph(model)), epochs=3) == []


def in_eval_mode_with_graph(model):
    return model.eval()(torch.rand(4, 3)).mean()


def test_the_forwards_of_a_model_that_is_not_trained_say_nothing():
    teacher = net()
    assert found(lambda _: forward(teacher).mean().item()) == []
