"""A trainer adds up losses that have a graph."""

import typing
import warnings
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "src/transformers/trainer.py"
CASE = Case(
    repository="huggingface/pytorch-pretrained-BERT",
    fix="25afb4ea50",
    license="Apache-2.0",
    kind="memory",
    what="the sum of all losses keeps the graphs of all steps",
    paths=(FILE,),
    also={FILE: (716,)},
    steps=4,
    options={"keep_steps": 3},
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x, y):
        return (nn.functional.mse_loss(self.net(x), y),)


def build():
    names = {**vars(typing), "nn": nn, "torch": torch, "warnings": warnings}
    statement(FILE, "def training_step(", names)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    args = SimpleNamespace(fp16=False, past_index=-1, n_gpu=1, gradient_accumulation_steps=1)
    trainer = SimpleNamespace(args=args, optimizer=optimizer, _prepare_inputs=lambda inputs: inputs)
    trainer.training_step = lambda model, inputs: names["training_step"](trainer, model, inputs)
    names.update(
        self=trainer, model=model, tr_loss=torch.tensor(0.0),
        inputs={"x": torch.randn(16, 4), "y": torch.randn(16, 1)},
    )  # fmt: skip

    def step(number):
        optimizer.zero_grad()
        statement(FILE, "tr_loss += self.training_step(model, inputs)", names)
        optimizer.step()
        return {"loss": names["tr_loss"].detach(), "kept": names["tr_loss"].grad_fn is not None}

    return model, step


def symptom(bug, fix):
    return bug.values[-1]["kept"]
