"""An attention masks its scores with a number that half precision cannot represent."""

import torch
from torch import nn

from tests.history.case import Case
from tests.history.excerpt import definitions

FILE = "darts/models/forecasting/tft_submodels.py"
CASE = Case(
    repository="unit8co/darts",
    fix="0b9601e4ae",
    license="Apache-2.0",
    kind="overflow",
    what="-1e9 is outside of the range of float16",
    paths=(FILE,),
)


class Attention(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.qkv, self.attention, self.head = nn.Linear(4, 12), attention, nn.Linear(4, 1)

    def forward(self, x, mask):
        output, _ = self.attention(*self.qkv(x).chunk(3, -1), mask=mask)
        return self.head(output)


def build():
    name = "_ScaledDotProductAttention"
    model = Attention(definitions(FILE, [name], {"MonteCarloDropout": nn.Dropout})[name]())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y, mask = torch.randn(2, 5, 4), torch.randn(2, 5, 1), torch.ones(5, 5).triu(1).bool()

    def step(number):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            prediction = model(x, mask)
        loss = nn.functional.mse_loss(prediction.float(), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def symptom(bug, fix):
    return "overflow" in bug.error
