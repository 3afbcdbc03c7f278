"""Label smoothing sums the log-probabilities of a vocabulary in FP16."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "src/transformers/trainer_pt_utils.py"
CASE = Case(
    repository="huggingface/pytorch-pretrained-BERT",
    fix="e21f89f64c",
    license="Apache-2.0",
    kind="nan",
    what="the sum over the vocabulary is more than FP16 can hold",
    paths=(FILE,),
    options={"fingerprints": True},
)


def build():
    smoother = definitions(FILE, ["LabelSmoother"], {})["LabelSmoother"]()
    model = nn.Linear(4, 12000).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, labels = torch.randn(2, 3, 4).half(), torch.randint(12000, (2, 3))

    def step(number):
        optimizer.zero_grad()
        loss = smoother({"logits": model(x)}, labels.clone())
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
