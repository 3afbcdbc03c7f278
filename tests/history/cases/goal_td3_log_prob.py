"""A log-probability of an action is computed through the inverse of a saturated `tanh`."""

from contextlib import nullcontext
from types import SimpleNamespace

import torch
from torch import distributions, nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "pfrl/agents/goal_conditioned_td3.py"
CASE = Case(
    repository="pfnet/pfrl",
    fix="29efd6c5f7",
    license="MIT",
    kind="nan",
    what="the sample is scaled and scaled back, so the distribution cannot use its cached input",
    paths=(FILE,),
)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 4)

    def forward(self, x):
        mean, scale = self.net(x).chunk(2, -1)
        normal = distributions.Independent(distributions.Normal(10 + mean, scale.exp()), 1)
        tanh = distributions.transforms.TanhTransform(cache_size=1)
        return distributions.TransformedDistribution(normal, [tanh])


class Value(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        return self.net(torch.cat(x, -1))


def build():
    names = {
        "torch": torch, "F": nn.functional,
        "pfrl": SimpleNamespace(utils=SimpleNamespace(evaluating=nullcontext)),
    }  # fmt: skip
    statement(FILE, "def update_q_func_with_goal(", names)
    statement(FILE, "def update_policy_with_goal(", names)
    model = nn.ModuleDict({"policy": Policy(), "q_func1": Value(), "q_func2": Value()})
    agent = SimpleNamespace(
        policy=model["policy"], target_policy=model["policy"], scale=2.0, add_entropy=True,
        q_func1=model["q_func1"], q_func2=model["q_func2"], temperature=1.0, max_grad_norm=None,
        target_q_func1=model["q_func1"], target_q_func2=model["q_func2"], q1_record=[],
        q2_record=[], q_func1_loss_record=[], q_func2_loss_record=[], policy_loss_record=[],
        q_func_n_updates=0, policy_n_updates=0, target_policy_smoothing_func=lambda actions: (
            actions + 0.1 * torch.randn_like(actions)).clamp(-2, 2),
    )  # fmt: skip
    for name, part in model.items():
        setattr(agent, f"{name}_optimizer", torch.optim.SGD(part.parameters(), lr=1e-3))
    batch = {
        "next_state": torch.randn(8, 4), "next_goal": torch.randn(8, 2), "reward": torch.randn(8),
        "is_state_terminal": torch.zeros(8), "state": torch.randn(8, 4), "goal": torch.randn(8, 2),
        "action": torch.randn(8, 2), "discount": torch.full((8,), 0.99),
    }  # fmt: skip

    def step(number):
        names["update_q_func_with_goal"](agent, batch)
        names["update_policy_with_goal"](agent, batch)
        return agent.policy_loss_record[-1]

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
