"""Losses of functions are put into a new tensor, which has no graph."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "deepxde/data/pde_operator.py"
CASE = Case(
    repository="lululxvi/deepxde",
    fix="0f69c6c2",
    license="LGPL-2.1",
    kind="detach",
    what="`as_tensor` of a list of losses copies their values without gradients",
    paths=(FILE,),
)


def build():
    import numpy as np

    names = {"np": np, "bkd": SimpleNamespace(
        as_tensor=torch.as_tensor, stack=torch.stack, reduce_mean=torch.mean,
        zeros_like=torch.zeros_like,
    )}  # fmt: skip
    statement(FILE, "def _losses(", names)
    branch = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 8))
    trunk = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 8))
    model = nn.ModuleDict({"branch": branch, "trunk": trunk})
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    functions, source = torch.randn(3, 5), torch.randn(3, 10)

    def equation(x, out, right):
        slope = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
        return slope - right

    data = SimpleNamespace(pde=SimpleNamespace(pde=equation, num_bcs=[], bcs=[]))
    net = SimpleNamespace(net=SimpleNamespace(auxiliary_vars=source))

    def step(number):
        optimizer.zero_grad()
        x = torch.linspace(0, 1, 10)[:, None].requires_grad_()
        outputs = model["branch"](functions) @ model["trunk"](x).t()
        losses = names["_losses"](
            data, outputs, nn.functional.mse_loss, (functions, x), net, len(functions)
        )
        loss = torch.stack(losses).sum()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "does not require grad" in bug.error
