"""The baseline of a policy gradient is part of the loss of the policy."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "reagent/training/reinforce_trainer.py"
CASE = Case(
    repository="facebookresearch/ReAgent",
    fix="60f7ab51ca",
    license="BSD-3-Clause",
    kind="detach",
    what="the advantage is not detached, and the graph of its baseline is gone already",
    paths=(FILE,),
    also={FILE: (121,)},
)


def build():
    names = {
        "torch": torch, "inspect": __import__("inspect"), "rlt": SimpleNamespace(
            PolicyGradientInput=object),
        "discounted_returns": lambda rewards, gamma: torch.stack(
            [sum(gamma**k * r for k, r in enumerate(rewards[t:])) for t in range(len(rewards))]),
    }  # fmt: skip
    statement(FILE, "def train_step_gen(", names)
    model = nn.ModuleDict({
        "value": nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)),
        "policy": nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)),
    })  # fmt: skip
    trainer = SimpleNamespace(
        _check_input=lambda batch: None, scorer=model["policy"], value_net=model["value"],
        sampler=SimpleNamespace(
            log_prob=lambda scores, a: scores.log_softmax(-1).gather(1, a[:, None]).squeeze(1)),
        reward_clip=10.0, gamma=0.9, normalize=False, subtract_mean=False, offset_clamp_min=False,
        value_loss_fn=nn.functional.mse_loss, off_policy=False, do_log_metrics=False,
    )  # fmt: skip
    batch = SimpleNamespace(state=torch.randn(10, 4), action=torch.randint(3, (10,)),
                            reward=torch.randn(10), possible_actions_mask=None)  # fmt: skip
    optimizers = [torch.optim.SGD(model[name].parameters(), lr=0.1) for name in ("value", "policy")]

    def step(number):
        losses = names["train_step_gen"](trainer, batch, number)
        for optimizer, loss in zip(optimizers, losses):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bool(bug.error)
