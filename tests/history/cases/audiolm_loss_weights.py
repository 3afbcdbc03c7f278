"""Two mean losses over different numbers of tokens get the same weight."""

import typing

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "audiolm_pytorch/audiolm_pytorch.py"
CASE = Case(
    repository="lucidrains/audiolm-pytorch",
    fix="e5408fbd25",
    license="MIT",
    kind="scale",
    what="coarse tokens, of which there are fewer, count more than fine ones",
    paths=(FILE,),
    within={FILE: ((1015, 1032),)},
    also={FILE: (1020, 1025)},
)


class Transformer(nn.Module):
    eos_id = 11

    def __init__(self):
        super().__init__()
        self.embed, self.coarse, self.fine = (
            nn.Embedding(12, 8), nn.Linear(8, 12), nn.Linear(8, 12),
        )  # fmt: skip

    def forward(self, coarse_token_ids, fine_token_ids):
        fine = nn.functional.pad(self.embed(fine_token_ids), (0, 0, 1, 0))
        return self.coarse(self.embed(coarse_token_ids)), self.fine(fine)


def build():
    names = definitions(
        FILE,
        ["exists", "append_eos_id", "FineTransformerWrapper"],
        {**vars(typing), "FineTransformer": object, "SoundStream": object},
    )
    model = Transformer()
    wrapper = names["FineTransformerWrapper"](transformer=model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    coarse, fine = torch.randint(11, (2, 3)), torch.randint(11, (2, 15))

    def step(number):
        optimizer.zero_grad()
        loss = wrapper(coarse_token_ids=coarse, fine_token_ids=fine, return_loss=True)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm("coarse") > 1.5 * fix.norm("coarse")
