"""An equalized linear layer scales its bias like its weight."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "model.py"
CASE = Case(
    repository="rosinality/stylegan2-pytorch",
    fix="d8d085099c",
    license="MIT",
    kind="scale",
    what="the bias is divided by the root of the number of inputs, so it hardly learns",
    paths=(FILE,),
    within={FILE: ((148, 156),)},
)


def build():
    names = {"fused_leaky_relu": lambda x, bias: nn.functional.leaky_relu(x + bias, 0.2) * 2**0.5}
    linear = definitions(FILE, ["EqualLinear"], names)["EqualLinear"]
    model = nn.Sequential(
        linear(64, 16, lr_mul=0.5, activation="fused_lrelu"), linear(16, 1, bias_init=1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(8, 64), torch.randn(8, 1)

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm("0.bias") < 0.3 * fix.norm("0.bias")
