"""Answers of ``why()`` agree with the findings: the lines to change, how, and what is wrong."""

import contextlib

import pytest
import torch
from torch import nn

import autogradviz
from autogradviz.errors import UnknownTargetError


def clears_in_each_micro_batch(model, optimizer):
    for _ in range(2):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.rand(4, 3)).sum().backward()
        optimizer.step()


def steps_of_another_layer(model, optimizer):
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.rand(4, 3)).sum().backward()
        optimizer.step()


def recorded(step):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[1] = nn.Linear(3, 2) if step is steps_of_another_layer else model[1]
    with autogradviz.record(model) as trace:
        step(model, optimizer)
    return trace


@pytest.mark.parametrize(
    ("step", "slug", "target"),
    [
        (clears_in_each_micro_batch, "gradients-discarded", "loss"),
        (steps_of_another_layer, "parameter-not-updated", "1.weight"),
    ],
)
def test_line_of_the_effect_alone_is_no_line_to_change(step, slug, target):
    trace = recorded(step)
    finding = next(each for each in trace.diagnose() if each.slug == slug)
    answer = trace.why(target)
    assert answer.steps[-1].location == finding.culprit
    assert finding.victim is not None
    assert finding.victim not in [each.location for each in answer.alternatives]
    assert "Or change" not in str(answer)
    entry = next(each for each in trace.audit() if each.location == finding.culprit)
    assert finding.victim not in entry.others
    assert answer.fix == finding.fix
    assert f"Fix: {finding.fix.splitlines()[0]}" in str(answer)
    assert trace.why(finding).fix == finding.fix


def test_answer_about_a_loss_that_is_not_finite_names_the_loss():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with autogradviz.record(model) as trace:
        loss = (model(torch.rand(4, 3)).abs() * -1).log().sum()
        loss.backward()
        optimizer.step()
    assert torch.isnan(loss)
    answer = trace.why("loss")
    assert str(answer).splitlines()[0] == "loss: the value is NaN or infinite"
    assert trace.why("loss", answer.question).question == answer.question


class RunningScale(nn.Module):
    """Keeps a running scale in a buffer, with its graph if that is not detached."""

    def __init__(self, *, detached):
        super().__init__()
        self.detached = detached
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("never_set", torch.ones(()))

    def forward(self, x):
        new = x.abs().mean()
        self.scale = 0.9 * self.scale + 0.1 * (new.detach() if self.detached else new)
        return x / self.scale * self.never_set


def trained(*, detached):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), RunningScale(detached=detached))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    raised = None
    try:
        with autogradviz.record(model) as trace:
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.rand(4, 3)).sum().backward()
                optimizer.step()
    except RuntimeError as error:
        raised = error
    return trace, raised


def test_buffer_that_forward_set_to_a_tensor_with_a_graph_has_one():
    trace, raised = trained(detached=False)
    assert raised is not None
    finding = trace.diagnose()[0]
    assert finding.slug == "graph-freed"
    answer = trace.why("1.scale")
    assert "requires_grad is False" not in str(answer)
    assert "forward set it to a tensor that is no leaf and carries a graph" in str(answer)
    assert [step.location for step in answer.steps[-2:]] == [finding.culprit] * 2
    assert (answer.steps[-1].text, answer.fix) == (finding.title, finding.fix)
    assert answer.to_record == ""


@pytest.mark.parametrize(("detached", "name"), [(True, "1.scale"), (False, "1.never_set")])
def test_buffer_without_a_graph_requires_no_gradient(detached, name):
    trace, _ = trained(detached=detached)
    assert "requires_grad is False" in str(trace.why(name))


def test_why_of_a_parameter_is_about_that_parameter():
    first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
    model = torch.nn.Sequential(first, second)
    with autogradviz.record(model) as trace:
        h = first(torch.rand(4, 3))
        h = h.detach()  # CUT
        second(h).sum().backward()
    answer = trace.why("0.weight")
    assert answer.steps[-1].text == "the gradient path from the loss to 0.weight ends here"
    assert answer.steps[-1].location.text.startswith("h = h.detach()")
    assert answer.fix == "# delete this line, if the gradient is wanted here"


def test_gradients_of_others_that_are_dropped_are_no_answer():
    nets = torch.nn.ModuleDict({"G": torch.nn.Linear(2, 4), "D": torch.nn.Linear(4, 1)})
    optimizers = [torch.optim.SGD(net.parameters(), 0.1) for net in nets.values()]
    with autogradviz.record(nets) as trace:
        for _ in range(3):
            fake = nets["G"](torch.rand(8, 2))
            optimizers[1].zero_grad()
            nets["D"](fake.detach()).square().mean().backward()
            optimizers[1].step()
            optimizers[0].zero_grad()
            (1 - nets["D"](fake)).square().mean().backward()
            optimizers[0].step()
    dropped = [entry for entry in trace.audit() if entry.mechanism == "drop"]
    assert dropped
    texts = {entry.effect for entry in dropped}
    assert texts.isdisjoint(step.text for step in trace.why("G.weight").steps)
    assert not texts.isdisjoint(step.text for step in trace.why("D.weight").steps)


def test_tensors_of_one_node_have_answers_of_their_own():
    weight = torch.rand(4, 4, requires_grad=True)
    with autogradviz.record() as trace:
        (torch.sigmoid(weight) * torch.tanh(weight)).sum().backward()
    answers = [trace.why(f"s{each.storage_id}") for each in trace.storage_histories()]
    texts = [[step.text for step in each.steps] for each in answers]
    made = ("sigmoid", "SigmoidBackward0", "self"), ("tanh", "TanhBackward0", "other")
    for (op, node, slot), answer, [held, first, second, last] in zip(
        made, answers, texts, strict=True
    ):
        assert answer.question == "why it was kept for backward"
        assert held == "64 B were held, and nothing holds them any more"
        assert (first.split(" #")[0], first.split(" as ")[1]) == (node, "result")
        assert (second.split(" #")[0], second.split(" as ")[1]) == ("MulBackward0", slot)
        assert last == f"it was made by {op}"


def test_answer_about_a_tensor_that_was_written_ends_at_the_write():
    weight = torch.rand(4, 4, requires_grad=True)
    with contextlib.suppress(RuntimeError), autogradviz.record() as trace:
        a, b = torch.sigmoid(weight), torch.tanh(weight)
        c = a * b
        a.add_(1)  # the write
        c.sum().backward()
    first, second = (trace.why(f"s{each.storage_id}") for each in trace.storage_histories())
    assert first.question == "written after it was saved"
    assert first.steps[-1].statement == "a.add_(1)  # the write"
    assert first.fix == "a = a.add(1)"
    assert second.question == "why it was kept for backward"
    stored = {each.subject: each for each in trace._viewer_scene.answers}
    assert not stored["storage 0"].ordinary
    assert stored["storage 1"].ordinary


def test_storage_of_no_saved_tensor_is_unknown():
    weight = torch.rand(4, 4, requires_grad=True)
    with autogradviz.record() as trace:
        torch.sigmoid(weight).sum().backward()
    with pytest.raises(UnknownTargetError):
        trace.why("s999")
