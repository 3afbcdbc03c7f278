"""A weight that was cast without gradients is taken from the cache of autocast with gradients."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "src/lightning/pytorch/plugins/precision/amp.py"
CASE = Case(
    repository="Lightning-AI/pytorch-lightning",
    fix="216f9ec90c",
    license="Apache-2.0",
    kind="no_grad",
    what="`autocast` caches the cast weight of a call with `no_grad`, and the next call uses it",
    paths=(FILE,),
)


class Precision:
    precision, device = "bf16-mixed", "cpu"


def build():
    names = {"torch": torch}
    statement(FILE, "def autocast_context_manager(", names)
    autocast = names["autocast_context_manager"]
    model = nn.ModuleDict({"encoder": nn.Linear(8, 8), "head": nn.Linear(8, 4)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(16, 8), torch.randn(16, 4)

    def step(number):
        optimizer.zero_grad()
        with autocast(Precision):
            with torch.no_grad():
                target = model["encoder"](x + 0.1)
            features = model["encoder"](x)
            loss = nn.functional.mse_loss(model["head"](torch.tanh(features)).float(), y)
            loss = loss + 0.1 * nn.functional.mse_loss(features.float(), target.float())
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "encoder.weight" not in bug.grads[0] and "encoder.weight" in fix.grads[0]
