"""The average of a score over an epoch keeps the graphs of all steps."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "utils/measures.py"
CASE = Case(
    repository="coqui-ai/TTS",
    fix="8dec2a9e95",
    license="MPL-2.0",
    kind="memory",
    what="a logged score is a tensor with a graph",
    paths=(FILE,),
    steps=4,
    options={"keep_steps": 3},
)


def build():
    names = definitions(FILE, ["alignment_diagonal_score"], {})
    model = nn.ModuleDict({"query": nn.Linear(8, 8), "out": nn.Linear(8, 8)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    memory, target = torch.randn(2, 6, 8), torch.randn(2, 5, 8)
    queries = torch.randn(2, 5, 8)
    average = {"avg_align_score": 0.0}

    def step(number):
        optimizer.zero_grad()
        alignments = (model["query"](queries) @ memory.transpose(1, 2)).softmax(-1)
        loss = nn.functional.mse_loss(model["out"](alignments @ memory), target)
        loss.backward()
        optimizer.step()
        score = names["alignment_diagonal_score"](alignments)
        average["avg_align_score"] = 0.9 * average["avg_align_score"] + 0.1 * score
        return {"loss": loss.detach(), "kept": isinstance(score, torch.Tensor)}

    return model, step


def symptom(bug, fix):
    return bug.live[-1] > bug.live[1] and fix.live[-1] - fix.live[1] < bug.live[-1] - bug.live[1]
