"""A custom function adds to the gradient of a parameter, and returns it as well."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions, statement

FILE = "unsloth_zoo/rl_replacements.py"
CASE = Case(
    repository="unslothai/unsloth-zoo",
    fix="d491423a78",
    license="LGPL-3.0-or-later",
    kind="custom function",
    what="the backward calls `autograd.backward`, which accumulates, and returns `.grad`",
    paths=(FILE,),
    within={FILE: ((1379, 1405),)},
)


class Eager:
    """`torch` without `torch.compile`."""

    def __getattr__(self, name):
        return getattr(torch, name)

    def compile(self, **options):
        return lambda function: function


def build():
    names = {
        "torch": Eager(), "torch_compile_options": {},
        "to_device": lambda tensor, device: tensor.to(device),
        "_offload_device_module": lambda tensor: None, "RL_REPLACEMENTS": {},
    }  # fmt: skip
    definitions(FILE, ["chunked_hidden_states_selective_log_softmax"], names)
    statement(FILE, "class Unsloth_Offloaded_Log_Softmax(", names)
    function = names["Unsloth_Offloaded_Log_Softmax"]
    model = nn.ModuleDict({
        "body": nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 8), nn.Tanh()),
        "head": nn.Linear(8, 20, bias=False),
    })  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens, targets = torch.randint(20, (4, 6)), torch.randint(20, (4, 6))
    advantages = torch.randn(4, 1)

    def step(number):
        optimizer.zero_grad()
        hidden = model["body"](tokens)
        log_probs = function.apply(hidden, model["head"].weight, targets, 2, 0.0, 0.0, 0.0, 1.0)
        loss = -(log_probs * advantages).mean()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm("head") > 1.5 * fix.norm("head")
