"""Updated parameters keep their updates as attributes, which no collector can free."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "learn2learn/utils/__init__.py"
CASE = Case(
    repository="learnables/learn2learn",
    fix="883d36ae80",
    license="MIT",
    kind="memory",
    what="a parameter holds its update, the graph of which has saved the parameter",
    paths=(FILE,),
    also={FILE: (277,)},
    steps=5,
    options={"keep_steps": 3},
)


def build():
    names = definitions(FILE, ["clone_module", "update_module"], {})
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(16, 4), torch.randn(16, 1)

    def adapt():
        learner = names["clone_module"](model)
        for _ in range(2):
            error = nn.functional.mse_loss(learner(x), y)
            grads = torch.autograd.grad(error, list(learner.parameters()), create_graph=True)
            names["update_module"](learner, updates=[-0.1 * g for g in grads])
        return nn.functional.mse_loss(learner(x), y)

    def step(number):
        optimizer.zero_grad()
        loss = adapt()
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach(), "validation": adapt().detach()}

    return model, step


def symptom(bug, fix):
    return bug.grows()
