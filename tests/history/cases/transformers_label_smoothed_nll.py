"""A smoothed loss is divided by the number of padded tokens."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "examples/seq2seq/utils.py"
CASE = Case(
    repository="huggingface/pytorch-pretrained-BERT",
    fix="9bed355449",
    license="Apache-2.0",
    kind="scale",
    what="`bs` counts the padding instead of the tokens; without padding it is 0",
    paths=(FILE,),
    options={"fingerprints": True},
)


def build():
    names = definitions(FILE, ["label_smoothed_nll_loss"], {})
    model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens, labels = torch.randint(12, (3, 5)), torch.randint(1, 12, (3, 5))

    def step(number):
        optimizer.zero_grad()
        lprobs = model(tokens).log_softmax(-1)
        loss, _ = names["label_smoothed_nll_loss"](lprobs, labels, 0.1, ignore_index=0)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
