"""Losses of valid rows are divided by the number of all rows."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "rl_games/algos_torch/torch_ext.py"
CASE = Case(
    repository="Denys88/rl_games",
    fix="2f78467",
    license="MIT",
    kind="scale",
    what="`numel` of a mask counts rows that are masked, so the gradient is too small",
    paths=(FILE,),
)


def build():
    apply_masks = definitions(FILE, ["apply_masks"], {"torch": torch})["apply_masks"]
    model = nn.ModuleDict({
        "body": nn.GRU(6, 16, batch_first=True), "mu": nn.Linear(16, 2), "value": nn.Linear(16, 1),
    })  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, action, returns = torch.randn(4, 8, 6), torch.randn(32, 2), torch.randn(32, 1)
    mask = (torch.arange(8) < torch.tensor([[2], [3], [1], [8]])).float().flatten()

    def step(number):
        optimizer.zero_grad()
        features = model["body"](x)[0].flatten(0, 1)
        value = model["value"](features)
        log_prob = torch.distributions.Normal(model["mu"](features), 1.0).log_prob(action).sum(-1)
        actor_loss = -log_prob[:, None] * (returns - value).detach()
        losses, _ = apply_masks([actor_loss, (returns - value).square()], mask)
        loss = losses[0] + 0.5 * losses[1]
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return fix.norm() > 1.5 * bug.norm()
