"""A summary of the history is computed once, and two losses go backward through it."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "pearl/policy_learners/policy_learner.py"
CASE = Case(
    repository="facebookresearch/Pearl",
    fix="a03a132",
    license="MIT",
    kind="backward",
    what="the state of a batch keeps the graph of the module that summarizes the history",
    paths=(FILE,),
)


class Batch(SimpleNamespace):
    def __getattr__(self, name):
        return None


class Summary(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.GRU(4, 8, batch_first=True)

    def forward(self, history):
        return self.net(history)[1][0]


def build():
    names = {"torch": torch, "TransitionBatch": Batch}
    statement(FILE, "def preprocess_batch(", names)
    model = nn.ModuleDict({
        "history": Summary(), "actor": nn.Linear(8, 3), "critic": nn.Linear(8, 1),
    })  # fmt: skip
    optimizers = {name: torch.optim.Adam(part.parameters(), lr=1e-3)
                  for name, part in model.items()}  # fmt: skip
    learner = SimpleNamespace(
        _history_summarization_module=model["history"],
        _action_representation_module=lambda action: action,
    )
    history, following = torch.randn(8, 5, 4), torch.randn(8, 5, 4)
    action, reward = torch.randint(3, (8,)), torch.randn(8)

    def update(name, loss):
        optimizers[name].zero_grad()
        loss.backward()
        optimizers[name].step()

    def step(number):
        batch = names["preprocess_batch"](
            learner, Batch(state=history, next_state=following, action=action, reward=reward)
        )
        value = model["critic"](batch.state).squeeze(-1)
        with torch.no_grad():
            target = batch.reward + 0.9 * model["critic"](batch.next_state).squeeze(-1)
        log_prob = model["actor"](batch.state).log_softmax(-1)
        advantage = (target - value).detach()
        update("actor", -(log_prob.gather(1, batch.action[:, None])[:, 0] * advantage).mean())
        loss = nn.functional.mse_loss(value, target)
        update("critic", loss)
        return loss

    return model, step


def symptom(bug, fix):
    return "second time" in bug.error
