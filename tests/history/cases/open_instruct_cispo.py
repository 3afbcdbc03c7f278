"""A loss clips a ratio that carries the gradient, instead of its weight."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "open_instruct/grpo_fast.py"
CASE = Case(
    repository="allenai/open-instruct",
    fix="0fecacc93",
    license="Apache-2.0",
    kind="formula",
    what="tokens whose ratio is clipped have no gradient, although the method should keep it",
    paths=(FILE,),
)


def build():
    model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens, mask = torch.randint(20, (4, 7)), torch.ones(4, 6)
    old = model(tokens[:, :-1]).log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
    old = (old + 0.4 * torch.randn(4, 6)).detach()
    advantages = torch.randn(4, 1).expand(4, 7)
    names = {
        "torch": torch, "data_BT": SimpleNamespace(advantages=[advantages]), "i": 0,
        "self": SimpleNamespace(
            args=SimpleNamespace(loss_fn="cispo", clip_lower=0.2, clip_higher=0.2)
        ),
    }  # fmt: skip

    def step(number):
        optimizer.zero_grad()
        scores = model(tokens[:, :-1]).log_softmax(-1)
        names["new_logprobs_BT"] = scores.gather(-1, tokens[:, 1:, None]).squeeze(-1)
        names["ratio_BT"] = torch.exp(names["new_logprobs_BT"] - old)
        statement(FILE, 'if self.args.loss_fn == "dapo":', names)
        largest = torch.max(names["pg_losses_BT"], names["pg_losses2_BT"])
        loss = (largest * mask).sum() / mask.sum()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["1.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.1 * right.norm())
