"""A divergence is bounded from below for each dimension, instead of once for their sum."""

import re
from types import SimpleNamespace

import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from tests.history.case import Case
from tests.history.excerpt import find, statement

FILE = "main.py"
CASE = Case(
    repository="Kaixhin/PlaNet",
    fix="7dd51a4a80",
    license="MIT",
    kind="clamp",
    what="each term is below the bound, so `max` selects the bound and the prior gets no gradient",
    paths=(FILE,),
)


def build():
    model = nn.ModuleDict({
        "prior": nn.Linear(4, 16), "posterior": nn.Linear(6, 16), "decoder": nn.Linear(8, 6),
    })  # fmt: skip
    args = SimpleNamespace(
        chunk_size=5, overshooting_distance=5, global_kl_beta=0, overshooting_kl_beta=0,
        grad_clip_norm=1000,
    )  # fmt: skip
    names = {
        "torch": torch, "nn": nn, "Normal": Normal, "kl_divergence": kl_divergence, "args": args,
        "free_nats": torch.full((1,), 3.0), "param_list": list(model.parameters()),
        "reward_loss": 0,
    }  # fmt: skip
    name = re.search(r"(\w+)\.zero_grad\(\)", find(FILE).read_text(encoding="utf-8"))[1]
    names[name] = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-4)
    beliefs, observations = 0.3 * torch.randn(5, 3, 4), 0.3 * torch.randn(5, 3, 6)

    def step(number):
        prior, prior_log = model["prior"](beliefs).chunk(2, -1)
        posterior, posterior_log = model["posterior"](observations).chunk(2, -1)
        names.update(prior_means=prior, prior_std_devs=prior_log.exp())
        names.update(posterior_means=posterior, posterior_std_devs=posterior_log.exp())
        states = posterior + posterior_log.exp() * torch.randn_like(posterior)
        error = (model["decoder"](states) - observations).square()
        names["observation_loss"] = error.sum(dim=2).mean(dim=(0, 1))
        for start in ("kl_loss = (1 / args.chunk_size)", f"{name}.zero_grad()",
                      "(observation_loss + reward_loss + kl_loss)", "nn.utils.clip_grad_norm_(",
                      f"{name}.step()"):  # fmt: skip
            statement(FILE, start, names)
        return names["observation_loss"] + names["kl_loss"].item()

    return model, step


def symptom(bug, fix):
    return bug.norm("prior") < 0.2 * fix.norm("prior")
