"""A decoder returns probabilities to a loss that expects scores."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "modules/prediction.py"
CASE = Case(
    repository="clovaai/deep-text-recognition-benchmark",
    fix="6aa123dd67",
    license="Apache-2.0",
    kind="loss",
    what="the cross entropy takes the softmax of a softmax",
    paths=(FILE,),
)


def build():
    names = definitions(FILE, ["PositionalEmbedding", "TorchDecoderWrapper"], {})
    model = names["TorchDecoderWrapper"](
        d_model=8, num_layers=1, num_output=30, embedding_dim=8, seq_length=6,
        learnable_embeddings=True,
    ).train()  # fmt: skip
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    text, target, memory = (
        torch.randint(30, (4, 6)),
        torch.randint(30, (4, 6)),
        torch.randn(4, 5, 8),
    )

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(text, memory).flatten(0, 1), target.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return bug.norm() < 0.5 * fix.norm()
