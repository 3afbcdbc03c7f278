"""Masked log-probabilities of an aligner are minus infinity in front of the CTC loss."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "nemo/collections/tts/losses/aligner_loss.py"
CASE = Case(
    repository="NVIDIA/NeMo",
    fix="aa2b9b8de4",
    license="Apache-2.0",
    kind="nan",
    what="the mask writes `-inf`, and the gradient of the CTC loss is NaN there",
    paths=(FILE,),
)


class Stub:
    def __getattr__(self, name):
        return lambda *arguments, **options: self


def build():
    stubs = dict.fromkeys(["LengthsType", "LogprobsType", "LossType", "NeuralType"], Stub())
    names = definitions(
        FILE, ["ForwardSumLoss"], {"Loss": nn.Module, "typecheck": lambda: lambda f: f, **stubs}
    )
    criterion = names["ForwardSumLoss"]()
    model = nn.ModuleDict({"query": nn.Linear(5, 8), "key": nn.Linear(6, 8)})
    mels, text = torch.randn(3, 9, 5), torch.randn(3, 4, 6)
    text_lengths, mel_lengths = torch.tensor([4, 3, 2]), torch.tensor([9, 8, 6])

    def step(number):
        scores = model["query"](mels) @ model["key"](text).transpose(1, 2)
        loss = criterion(scores.log_softmax(-1).unsqueeze(1), text_lengths, mel_lengths)
        loss.backward()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.has_nan()
