"""An optimizer gets the parameters of the model, and not those of the criterion."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "main.py"
CASE = Case(
    repository="salesforce/awd-lstm-lm",
    fix="1f0982e861",
    license="BSD-3-Clause",
    kind="optimizer",
    what="the vectors of the adaptive softmax are never updated, and their gradients never cleared",
    paths=(FILE, "splitcross.py"),
    within={FILE: ((209, 209), (235, 238))},
    steps=3,
    options={"keep_steps": 3},
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(12, 8), nn.GRU(8, 8)
        self.decoder = nn.Linear(8, 12)

    def init_hidden(self, size):
        return torch.zeros(1, size, 8)

    def forward(self, data, hidden, return_h):
        output, hidden = self.rnn(self.embedding(data), hidden)
        return output.view(-1, 8), hidden, [output], [output]


def build():
    import time

    from splitcross import SplitCrossEntropyLoss

    model = nn.ModuleDict({"lm": Model(), "criterion": SplitCrossEntropyLoss(8, [4])})
    args = SimpleNamespace(
        optimizer="sgd", lr=0.5, wdecay=0.0, model="LSTM", batch_size=2, bptt=6, alpha=0, beta=0,
        clip=0, log_interval=100,
    )  # fmt: skip
    draws = SimpleNamespace(random=lambda: 0.0, normal=lambda mean, width: mean)
    losses = []

    def criterion(*inputs):
        loss = model["criterion"](*inputs)
        losses.append(loss.detach())
        return loss

    criterion.parameters = model["criterion"].parameters

    def get_batch(source, i, args, seq_len):
        return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].reshape(-1)

    names = {
        "torch": torch, "time": time, "np": SimpleNamespace(random=draws), "args": args,
        "model": model["lm"], "criterion": criterion, "get_batch": get_batch,
        "corpus": SimpleNamespace(dictionary=range(12)), "train_data": torch.randint(12, (8, 2)),
        "repackage_hidden": lambda hidden: hidden.detach(),
    }  # fmt: skip
    statement(FILE, "params = list(model.parameters())", names)
    statement(FILE, "if args.optimizer == 'sgd':", names)
    statement(FILE, "def train():", names)

    def step(number):
        names["train"]()
        return {"loss": losses[-1], "tail": model["criterion"].tail_vectors.detach()}

    return model, step


def symptom(bug, fix):
    return bool((bug.values[-1]["tail"] == 0).all() and (fix.values[-1]["tail"] != 0).any())
