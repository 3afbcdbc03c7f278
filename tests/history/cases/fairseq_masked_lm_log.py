"""The logging output of a criterion keeps the graph of the loss."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "fairseq/criterions/masked_lm.py"
CASE = Case(
    repository="facebookresearch/fairseq",
    fix="8eb9123f56",
    license="MIT",
    kind="memory",
    what="the logged loss is not detached",
    paths=(FILE,),
    steps=4,
    options={"keep_steps": 3},
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(12, 8), nn.Linear(8, 12)

    def forward(self, tokens, masked_tokens):
        return (self.out(self.embed(tokens)[masked_tokens]),)

    def get_targets(self, sample, output):
        return sample["target"]


def build():
    class Criterion(nn.Module):
        def __init__(self, task):
            super().__init__()
            self.padding_idx = 0

    names = definitions(
        FILE,
        ["MaskedLmLoss"],
        {"FairseqCriterion": Criterion, "register_criterion": lambda name: lambda cls: cls,
         "modules": SimpleNamespace(cross_entropy=nn.functional.cross_entropy)},
    )  # fmt: skip
    criterion, model = names["MaskedLmLoss"](None, tpu=False), Model()
    optimizer = torch.optim.Adam(model.parameters())
    tokens = torch.randint(1, 12, (4, 6))
    sample = {"target": tokens, "net_input": {"tokens": tokens}, "ntokens": 24, "nsentences": 4}
    logging_outputs = []

    def step(number):
        optimizer.zero_grad()
        loss, _sample_size, logging_output = criterion(model, sample)
        logging_outputs.append(logging_output)
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach(), "kept": logging_outputs[0]["loss"].grad_fn is not None}

    return model, step


def symptom(bug, fix):
    return bug.values[-1]["kept"]
