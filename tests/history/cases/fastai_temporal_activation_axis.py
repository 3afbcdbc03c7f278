"""A penalty for changes over time compares the sequences of a batch."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "fastai/callbacks/rnn.py"
CASE = Case(
    repository="fastai/fastai1",
    fix="79bd4467",
    license="Apache-2.0",
    kind="axis",
    what="`h[1:] - h[:-1]` is along the batch, which is the first axis",
    paths=(FILE,),
    within={FILE: ((28, 33),)},
)


def build():
    names = {"LearnerCallback": object, "Learner": object, "Tensor": torch.Tensor,
             "Rank0Tensor": torch.Tensor, "Tuple": tuple}  # fmt: skip
    callback_class = definitions(FILE, ["RNNTrainer"], names)["RNNTrainer"]
    callback = callback_class.__new__(callback_class)
    callback.__dict__.update(
        learn=SimpleNamespace(opt=SimpleNamespace(lr=1.0)), bptt=7, alpha=0.0, beta=1.0,
        adjust=False,
    )  # fmt: skip
    model = nn.ModuleDict({
        "embed": nn.Embedding(20, 6), "rnn": nn.LSTM(6, 8, batch_first=True),
        "out": nn.Linear(8, 20),
    })  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    tokens = torch.randint(20, (4, 8))

    def step(number):
        optimizer.zero_grad()
        hidden, _ = model["rnn"](model["embed"](tokens[:, :-1]))
        output = callback.on_loss_begin((model["out"](hidden), [hidden], [hidden]))
        loss = nn.functional.cross_entropy(output.flatten(0, 1), tokens[:, 1:].flatten())
        loss = callback.on_backward_begin(loss, tokens)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return abs(bug.losses[0] - fix.losses[0]) > 1e-3 and bug.norm("rnn") != fix.norm("rnn")
