"""A loss that predicts the next latent also moves the latent towards its prediction."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "dreamer4/dreamer4.py"
CASE = Case(
    repository="lucidrains/dreamer4",
    fix="409c6ffa77",
    license="MIT",
    kind="detach",
    what="the target of an autoregressive loss is not detached",
    paths=(FILE,),
)


def build():
    from types import SimpleNamespace

    names = {
        "F": nn.functional, "exists": lambda value: value is not None, "torch": torch,
        "default": lambda value, other: other if value is None else value,
    }  # fmt: skip
    start = source_of_forward()
    statement(FILE, "def forward(", names, start)
    model = nn.ModuleDict({"encoder": nn.Linear(6, 4), "net": nn.Linear(4, 4)})
    module = SimpleNamespace(net=model["net"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 5, 6)

    def step(number):
        optimizer.zero_grad()
        latents = model["encoder"](x)
        losses, _ = names["forward"](module, latents, return_unreduced_loss=True)
        loss = losses.mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def source_of_forward():
    """Return the number of the ``forward`` of the class, among all in the file."""
    from tests.history.excerpt import find

    lines = find(FILE).read_text(encoding="utf-8").splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("class LatentAutoregressive"))
    return sum(line.lstrip().startswith("def forward(") for line in lines[:first])


def symptom(bug, fix):
    return bug.norm("encoder") > 1.5 * fix.norm("encoder")
