"""The mean that a dueling network subtracts from its advantages is detached."""

import numpy as np
import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "fqf_iqn/network.py"
CASE = Case(
    repository="toshikwa/fqf-iqn-qrdqn.pytorch",
    fix="35326ac",
    license="NONE",
    kind="detach",
    what="`advantages.detach().mean(...)` has no gradient",
    paths=(FILE,),
)


def build():
    network = definitions(FILE, ["QuantileValueNetwork"], {"np": np, "NoisyLinear": None})
    model = network["QuantileValueNetwork"](
        num_actions=3, num_cosines=8, embedding_dim=16, dueling_net=True
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    states, taus = torch.randn(4, 16), torch.rand(4, 5)
    actions, target = torch.randint(3, (4, 5, 1)), torch.randn(4, 5, 1)

    def step(number):
        optimizer.zero_grad()
        quantiles = model(states, taus).gather(2, actions)
        loss = nn.functional.smooth_l1_loss(quantiles, target)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["quantile_advantage_net.2.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.2 * right.norm())
