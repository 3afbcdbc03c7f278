"""The mean of a loss is computed and not used, so the loss has one element for each example."""

from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions, statement

FILE = "voicebox_pytorch/voicebox_pytorch.py"
CASE = Case(
    repository="lucidrains/voicebox-pytorch",
    fix="02a5bcf",
    license="MIT",
    kind="shape",
    what="`loss.mean()` stands alone, and `backward` refuses a loss of several elements",
    paths=(FILE,),
    within={FILE: ((415, 440),)},
)


class Durations(nn.Module):
    def __init__(self):
        super().__init__()
        self.to_phoneme_emb, self.to_embed = nn.Embedding(10, 4), nn.Linear(12, 8)
        self.conv_embed, self.transformer = (
            nn.Linear(8, 8),
            nn.Sequential(nn.Linear(8, 1), nn.Flatten(1)),
        )

    def forward_aligner(self, phonemes, phoneme_mask, mel, mel_mask):
        return None, None, (phonemes @ mel.transpose(1, 2)).log_softmax(-1), None

    def align_loss(self, scores, phoneme_length, mel_length):
        return -scores.diagonal(dim1=1, dim2=2).mean()


def build():
    from einops import rearrange, reduce  # of the environment of the histories

    names = definitions(FILE, ["exists"], {
        "torch": torch, "F": nn.functional, "reduce": reduce, "rearrange": rearrange,
    })  # fmt: skip
    statement(FILE, "def forward(", names, number=6)
    model = Durations()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, cond, mel = torch.randn(3, 5, 4), torch.randn(3, 5, 4), torch.randn(3, 5, 4)
    batch = SimpleNamespace(ids=torch.randint(10, (3, 5)), target=torch.rand(3, 5))
    mask = torch.arange(5).expand(3, 5) < 2

    def step(number):
        optimizer.zero_grad()
        loss = names["forward"](
            model, x, phoneme_ids=batch.ids, mel=mel, cond=cond, target=batch.target, mask=mask
        )
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "scalar" in bug.error
