"""The marginals of a structured distribution have no graph."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "supar/structs/dist.py"
CASE = Case(
    repository="yzhangcs/parser",
    fix="ddd81dd",
    license="MIT",
    kind="double backward",
    what="`autograd.grad(..., retain_graph=True)` keeps the graph and does not create one",
    paths=(FILE,),
)


def build():
    names = {"torch": torch, "autograd": torch.autograd}
    statement(FILE, "def backward(", names)
    model = nn.ModuleDict({"embed": nn.Embedding(12, 8), "score": nn.Bilinear(8, 8, 3)})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    words, tags = torch.randint(12, (2, 6)), torch.randint(3, (2, 5))

    def step(number):
        optimizer.zero_grad()
        hidden = model["embed"](words)
        scores = model["score"](hidden[:, :-1], hidden[:, 1:])
        chain = scores[:, 0]
        for position in range(1, 5):
            chain = chain.logsumexp(-1, keepdim=True) + scores[:, position]
        log_partition = chain.logsumexp(-1).sum()
        marginals = names["backward"](SimpleNamespace(scores=scores), log_partition)
        gold = scores.gather(2, tags[..., None]).sum()
        risk = 1.0 - marginals.gather(2, tags[..., None])
        loss = 0.1 * (log_partition - gold) + risk.sum()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    mine, right = (run.grads[0]["score.weight"] for run in (bug, fix))
    return bool((mine - right).norm() > 0.2 * right.norm())
