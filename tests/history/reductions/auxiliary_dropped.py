"""The auxiliary loss of an encoder is unpacked and forgotten."""

import torch
from torch import nn

FOUND = True


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.balance = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        hidden = self.body(x).tanh()
        load = self.balance(hidden).softmax(-1).mean(0)
        return hidden, 4 * load.square().sum()


class Model(nn.Module):
    def __init__(self, *, keep):
        super().__init__()
        self.encoder, self.head, self.keep = Encoder(), nn.Linear(8, 3), keep

    def forward(self, x, labels):
        if self.keep:
            hidden, extra = self.encoder(x)
            return nn.functional.cross_entropy(self.head(hidden), labels) + extra
        hidden, _ = self.encoder(x)  # CULPRIT
        return nn.functional.cross_entropy(self.head(hidden), labels)


def train(keep):
    torch.manual_seed(0)
    model = Model(keep=keep)
    model(torch.randn(10, 6), torch.randint(3, (10,))).backward()
    return [torch.zeros(1) if p.grad is None else p.grad.clone() for p in model.parameters()]


def run():
    return train(keep=False)


def reference():
    return train(keep=True)
