"""A penalty is averaged over the dimensions of an action, where its definition has a sum."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "d3rlpy/algos/qlearning/torch/rebrac_impl.py"
CASE = Case(
    repository="takuseno/d3rlpy",
    fix="87751da6c9",
    license="MIT",
    kind="scale",
    what="the penalty of the actor is smaller than that of the critic by the number of dimensions",
    paths=(FILE,),
)


def build():
    names = {"torch": torch, "TorchMiniBatch": object, "ActionOutput": object,
             "TD3PlusBCActorLoss": SimpleNamespace}  # fmt: skip
    statement(FILE, "def compute_actor_loss(", names)
    model = nn.ModuleDict({
        "actor": nn.Sequential(nn.Linear(4, 6), nn.Tanh()), "critic": nn.Linear(10, 1),
    })  # fmt: skip
    impl = SimpleNamespace(
        _actor_beta=1.0,
        _q_func_forwarder=SimpleNamespace(compute_expected_q=lambda x, action, reduction: (
            model["critic"](torch.cat([x, action], -1)))),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model["actor"].parameters(), lr=1e-3)
    batch = SimpleNamespace(observations=torch.randn(8, 4), actions=torch.rand(8, 6) * 2 - 1)

    def step(number):
        action = SimpleNamespace(squashed_mu=model["actor"](batch.observations))
        loss = names["compute_actor_loss"](impl, batch, action).actor_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    first, second = bug.grads[0]["actor.0.weight"], fix.grads[0]["actor.0.weight"]
    return bool((first - second).norm() > 0.1 * second.norm())
