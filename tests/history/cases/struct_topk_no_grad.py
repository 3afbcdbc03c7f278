"""A structured distribution computes its best structures by autograd, also without gradients."""

import torch
from torch import nn

from tests.history.case import Case

CASE = Case(
    repository="harvardnlp/pytorch-struct",
    fix="7c34ae1d21",
    license="MIT",
    kind="no_grad",
    what="`topk` calls `autograd.grad` and does not enable gradients for it",
    paths=("torch_struct/", "torch_struct/distributions.py"),
    within={"torch_struct/distributions.py": ((96, 98),)},
)


def build():
    from torch_struct import LinearChainCRF

    model = nn.Linear(4, 9)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, tags = torch.randn(2, 5, 4), torch.randint(3, (2, 6))
    structure = torch.zeros(2, 5, 3, 3)
    for row in range(2):
        for n in range(5):
            structure[row, n, tags[row, n + 1], tags[row, n]] = 1

    def step(number):
        loss = -LinearChainCRF(model(x).view(2, 5, 3, 3)).log_prob(structure).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            best = LinearChainCRF(model(x).view(2, 5, 3, 3)).topk(2)
        return {"loss": loss, "best": best.detach()}

    return model, step


def symptom(bug, fix):
    return bool(bug.error)
