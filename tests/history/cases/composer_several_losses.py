"""Each of several losses of one forward goes backward on its own."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "composer/trainer/trainer.py"
CASE = Case(
    repository="mosaicml/composer",
    fix="d3bfbfc0b",
    license="Apache-2.0",
    kind="backward",
    what="the first `backward` frees the graph that the losses share",
    paths=(FILE,),
)


def build():
    model = nn.ModuleDict({
        "body": nn.Sequential(nn.Linear(6, 8), nn.Tanh()), "first": nn.Linear(8, 3),
        "second": nn.Linear(8, 1),
    })  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, labels, values = torch.randn(8, 6), torch.arange(8) % 3, torch.randn(8, 1)
    trainer = SimpleNamespace(
        deepspeed_enabled=False,
        _backwards_create_graph=False,
        state=SimpleNamespace(),
        _device=SimpleNamespace(tensor_to_device=lambda tensor: tensor),
    )
    names = {"self": trainer, "torch": torch, "ensure_tuple": tuple}

    def step(number):
        optimizer.zero_grad()
        hidden = model["body"](x)
        trainer.state.loss = (
            nn.functional.cross_entropy(model["first"](hidden), labels),
            nn.functional.mse_loss(model["second"](hidden), values),
        )
        statement(FILE, "if self.deepspeed_enabled:", names, number=3)
        optimizer.step()
        return sum(trainer.state.loss).detach()

    return model, step


def symptom(bug, fix):
    return "second time" in bug.error
