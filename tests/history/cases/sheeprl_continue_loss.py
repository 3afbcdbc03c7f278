"""The loss of a world model adds log probabilities that are neither negated nor averaged."""

import torch
from torch import nn
from torch.distributions import Bernoulli, Independent, Normal

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "sheeprl/algos/dreamer_v2/loss.py"
CASE = Case(
    repository="Eclectic-Sheep/sheeprl",
    fix="b7166092",
    license="Apache-2.0",
    kind="shape",
    what="one of the terms has a value per state, so the loss is no scalar",
    paths=(FILE,),
)


def build():
    loss_function = definitions(FILE, ["reconstruction_loss"], {})["reconstruction_loss"]
    model = nn.ModuleDict({
        "posterior": nn.Linear(6, 12), "prior": nn.Linear(6, 12), "decoder": nn.Linear(12, 6),
        "reward": nn.Linear(12, 1), "continue": nn.Linear(12, 1),
    })  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    observations, rewards = torch.randn(5, 4, 6), torch.randn(5, 4, 1)
    continues = (torch.rand(5, 4, 1) > 0.2).float()

    def step(number):
        optimizer.zero_grad()
        posterior = model["posterior"](observations).view(5, 4, 3, 4)
        prior = model["prior"](observations.roll(1, 0)).view(5, 4, 3, 4)
        state = posterior.softmax(-1).flatten(-2)
        loss, *_ = loss_function(
            Independent(Normal(model["decoder"](state), 1.0), 1), observations,
            Independent(Normal(model["reward"](state), 1.0), 1), rewards, prior, posterior,
            qc=Independent(Bernoulli(logits=model["continue"](state)), 1), dones=continues,
        )  # fmt: skip
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "scalar outputs" in bug.error
