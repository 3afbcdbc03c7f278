"""Two losses and a step between their backwards: which line is to change, and how sure it is."""

import pytest
import torch
from torch import nn

import autogradviz


class Pair:
    def __init__(self):
        torch.manual_seed(0)
        self.maker = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3))
        self.judge = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        self.of_maker = torch.optim.SGD(self.maker.parameters(), lr=0.1)
        self.of_judge = torch.optim.SGD(self.judge.parameters(), lr=0.1)
        self.made = self.maker(torch.randn(5, 2))
        self.real = torch.randn(5, 3)

    def train_maker(self):
        loss = -self.judge(self.made).mean()
        self.of_maker.zero_grad()
        loss.backward()
        self.of_maker.step()

    def train_judge(self):
        made = keep(self.made)
        loss = self.judge(made).mean() - self.judge(self.real).mean()
        self.of_judge.zero_grad()
        loss.backward()
        self.of_judge.step()

    def maker_loss(self):
        return -self.judge(self.maker(torch.randn(5, 2))).mean()


def keep(images):
    return torch.stack(list(images))


def judge_after_maker():
    pair = Pair()
    pair.train_maker()
    pair.train_judge()


def losses_before_steps():
    pair = Pair()
    judged = pair.judge(pair.real).mean()
    loss = pair.maker_loss()
    judged.backward()
    pair.of_judge.step()
    loss.backward()


def one_optimizer():
    pair = Pair()
    every = torch.optim.SGD([*pair.maker.parameters(), *pair.judge.parameters()], lr=0.1)
    loss = pair.maker_loss()
    pair.judge(pair.real).mean().backward()
    every.step()
    loss.backward()


def shared_in_one_step():
    pair = Pair()
    first, second = pair.made.mean(), pair.made.square().mean()
    first.backward()
    second.backward()


class Batch:
    def summarize(self, model, data):
        self.state = model(data).tanh()


def state_of_two_losses():
    """Train two heads, each by its own loss, on a state that no optimizer trains."""
    summary, actor, critic = (torch.nn.Linear(2, 2) for _ in range(3))
    for_actor, for_critic = (torch.optim.SGD(e.parameters(), lr=0.1) for e in (actor, critic))
    batch = Batch()
    batch.summarize(summary, torch.randn(5, 2))
    value = critic(batch.state)
    advantage = (1 - value).detach()
    (actor(batch.state) * advantage).mean().backward()
    for_actor.step()
    value.square().mean().backward()
    for_critic.step()


WRONG = {
    state_of_two_losses: ("graph-freed", "self.state = model(data).tanh()", "likely"),
    judge_after_maker: ("graph-freed", "made = keep(self.made)", "likely"),
    losses_before_steps: ("saved-tensor-mutated", "loss = pair.maker_loss()", "likely"),
    one_optimizer: ("saved-tensor-mutated", "every.step()", "likely"),
    shared_in_one_step: ("graph-freed", "first.backward()", "likely"),
}


@pytest.mark.parametrize("work", WRONG, ids=lambda work: work.__name__)
def test_a_line_is_certain_only_if_no_other_could_be_changed(work):
    with pytest.raises(RuntimeError), autogradviz.record() as trace:
        work()
    (finding,) = trace.diagnose()
    assert (finding.slug, finding.culprit.text, finding.confidence) == WRONG[work]


def test_keeping_the_graph_is_no_advice_if_its_weights_were_updated():
    with pytest.raises(RuntimeError), autogradviz.record() as trace:
        judge_after_maker()
    (finding,) = trace.diagnose()
    assert "self.made.detach()" in finding.fix
    assert "self.of_maker.step()" in finding.explanation
    assert "retain_graph=True" not in finding.fix


class Turns(Pair):
    def maker_step(self):
        self.of_maker.zero_grad()
        self.maker_loss().backward()
        self.of_maker.step()

    def judge_step(self):
        loss = self.judge(self.real).square().mean()
        loss.backward()
        self.of_judge.step()
        self.of_judge.zero_grad()


@pytest.mark.parametrize("keep_steps", [None, 3])
def test_gradients_that_are_cleared_after_their_step_only_are_named_where_they_are(keep_steps):
    pair = Turns()
    with autogradviz.record(keep_steps=keep_steps) as trace:
        for _ in range(4):
            pair.maker_step()
            pair.judge_step()
    first = trace.diagnose()[0]
    assert (first.slug, first.culprit.text) == ("gradients-mixed", "self.of_judge.zero_grad()")
    assert first.fix == "self.of_judge.zero_grad()\nloss.backward()"


class JudgeFirst(Turns):
    def judge_step(self):
        self.of_judge.zero_grad()
        made = self.maker(torch.randn(5, 2))
        loss = self.judge(made).mean() - self.judge(self.real).mean()
        loss.backward()
        self.of_judge.step()

    def maker_step(self):
        loss = -self.judge(self.maker(torch.randn(5, 2))).mean()
        loss.backward()
        self.of_maker.step()
        self.of_maker.zero_grad()


def test_what_a_loss_leaves_in_the_parameters_of_another_optimizer_is_to_be_detached():
    pair = JudgeFirst()
    with autogradviz.record() as trace:
        for _ in range(4):
            pair.judge_step()
            pair.maker_step()
    first = trace.diagnose()[0]
    entry = "loss = self.judge(made).mean() - self.judge(self.real).mean()"
    assert (first.slug, first.culprit.text) == ("gradients-mixed", entry)
    assert first.fix == entry.replace("made", "made.detach()")


class TurnsOfOneLine(Turns):
    def backward(self, loss):
        loss.backward()

    def maker_step(self):
        self.of_maker.zero_grad()
        self.backward(-self.judge(self.made_again()).mean())
        self.of_maker.step()

    def made_again(self):
        return self.maker(torch.randn(5, 2))

    def judge_step(self):
        self.backward(self.judge(self.real).square().mean())
        self.of_judge.step()
        self.of_judge.zero_grad()


def test_the_line_that_clears_too_late_is_named_if_one_line_starts_all_backwards():
    pair = TurnsOfOneLine()
    with autogradviz.record() as trace:
        for _ in range(4):
            pair.maker_step()
            pair.judge_step()
    first = trace.diagnose()[0]
    assert (first.slug, first.culprit.text) == ("gradients-mixed", "self.of_judge.zero_grad()")


def test_lost_gradients_are_not_also_a_wrong_divisor():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with autogradviz.record(model) as trace:
        for number in range(1, 17):
            optimizer.zero_grad()
            (model(torch.ones(3, 2)).square().mean() / 4).backward()
            if number % 4 == 0:
                optimizer.step()
    assert [finding.slug for finding in trace.diagnose()] == ["gradients-discarded"]


def test_a_write_that_gives_a_buffer_a_graph_is_named_with_its_fix():
    model = torch.nn.Linear(2, 1)
    model.register_buffer("average", torch.ones(2))
    with pytest.raises(RuntimeError, match="second time"), autogradviz.record(model) as trace:
        for _ in range(3):
            loss = model(model.average[None]).square().sum()
            loss.backward()
            with torch.enable_grad():
                model.average.copy_(model.average * 0.9 + model.weight[0].exp())  # CULPRIT
    first = trace.diagnose()[0]
    assert first.culprit.text.endswith("# CULPRIT")
    assert first.fix.startswith("with torch.no_grad():\n    model.average.copy_(")
