"""A recurrent network trained on windows of a long sequence; the state crosses windows."""

import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.input = nn.Linear(inputs, width)
        self.state = nn.Linear(width, width, bias=False)
        self.gate = nn.Parameter(torch.zeros(width))

    def forward(self, x, h):
        proposal = torch.tanh(self.input(x) + self.state(h))
        keep = torch.sigmoid(self.gate)
        h = keep * h + (1 - keep) * proposal
        return h


class Recurrent(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.cell = Cell(1, width)
        self.read = nn.Linear(width, 1)

    def forward(self, xs, h):
        outputs = []
        for x in xs:
            h = self.cell(x, h)
            y = self.read(h)
            outputs.append(y)
        return torch.stack(outputs), h


def main():
    torch.manual_seed(0)
    model = Recurrent()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    wave = torch.sin(torch.arange(40.0) / 3).view(-1, 1, 1)
    h = torch.zeros(1, 8)
    losses = []
    for start in range(0, 32, 8):
        xs = wave[start : start + 8]
        target = wave[start + 1 : start + 9]
        h = h.detach()
        ys, h = model(xs, h)
        loss = ((ys - target) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        losses.append(loss.detach())
    return {"mean": torch.stack(losses).mean(), **dict(model.named_parameters())}
