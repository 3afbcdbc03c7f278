"""CopyNet writes combined scores into log-probabilities that backward needs."""

import typing
from types import SimpleNamespace

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import statement

FILE = "allennlp/models/encoder_decoders/copynet_seq2seq.py"
CASE = Case(
    repository="allenai/allennlp",
    fix="c629093b6f",
    license="Apache-2.0",
    kind="in-place",
    what="`scatter_` writes the result of a softmax",
    paths=(FILE,),
)


def build():
    names = {
        **vars(typing), "torch": torch,
        "util": SimpleNamespace(logsumexp=lambda t: torch.logsumexp(t, -1)),
    }  # fmt: skip
    statement(FILE, "def _gather_final_log_probs(", names)
    model = nn.ModuleDict({"generate": nn.Linear(8, 10), "copy": nn.Linear(8, 4)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, targets = torch.randn(3, 8), torch.randint(10, (3,))
    state = {
        "source_to_target": torch.randint(10, (3, 4)),
        "source_token_ids": torch.randint(6, (3, 4)),
    }

    def step(number):
        optimizer.zero_grad()
        scores = torch.cat([model["generate"](x), model["copy"](x)], -1).log_softmax(-1)
        generation, copy = scores.split([10, 4], -1)
        generation = generation + 0.0
        generation = generation.log_softmax(-1)
        final = names["_gather_final_log_probs"](
            SimpleNamespace(_oov_index=1), generation, copy, state
        )
        loss = nn.functional.nll_loss(final, targets)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "modified by an inplace operation" in bug.error
