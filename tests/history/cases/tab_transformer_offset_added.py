"""An offset is added in place to the categories that the caller passes."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "tab_transformer_pytorch/ft_transformer.py"
CASE = Case(
    repository="lucidrains/tab-transformer-pytorch",
    fix="bcd9b8b",
    license="MIT",
    kind="in-place",
    what="`x_categ += self.categories_offset` changes the batch, which the next epoch passes again",
    paths=(FILE,),
    steps=2,
    options={"keep_steps": 2},
)


def build():
    names = definitions(FILE, [
        "GEGLU", "FeedForward", "Attention", "Transformer", "NumericalEmbedder", "FTTransformer",
    ], {})  # fmt: skip
    model = names["FTTransformer"](categories=(5, 12), num_continuous=2, dim=8, depth=1, heads=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    categories = torch.stack([torch.arange(4) % 5, torch.arange(4) % 3], 1)
    numbers, target = torch.randn(4, 2), torch.randn(4, 1)

    def step(number):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(categories, numbers), target)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "rows": model.categorical_embeds.weight.grad.abs().sum(1) > 0}

    return model, step


def symptom(bug, fix):
    return bool(bug.error) or not torch.equal(bug.values[0]["rows"], bug.values[1]["rows"])
