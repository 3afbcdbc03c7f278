"""Two tasks with learned weights, a shared body, a hook that counts, and accumulated gradients."""

import torch
from torch import nn


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 6, 3, padding=1)
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(2)])

    def forward(self, x):
        h = torch.relu(self.conv(x))
        h = h.mean(-1)
        for layer in self.layers:
            h = h + torch.relu(layer(h))
        return h


class TwoTasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Body()
        self.regress = nn.Linear(6, 1)
        self.classify = nn.Linear(6, 3)
        self.log_vars = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        h = self.body(x)
        value = self.regress(h).squeeze(-1)
        logits = self.classify(Scale.apply(h, 0.5))
        return value, logits

    def loss(self, x, y, label):
        value, logits = self(x)
        first = (value - y).pow(2).mean()
        second = nn.functional.cross_entropy(logits, label)
        losses = torch.stack([first, second])
        weighted = losses * torch.exp(-self.log_vars) + self.log_vars
        return weighted.sum(), losses.detach()


def main():
    torch.manual_seed(0)
    model = TwoTasks()
    optimizer = torch.optim.Adam(
        [
            {"params": model.body.parameters()},
            {"params": [*model.regress.parameters(), *model.classify.parameters()]},
            {"params": [model.log_vars], "lr": 1e-1},
        ],
        lr=1e-2,
    )
    norms = []
    model.regress.weight.register_hook(lambda g: norms.append(float(g.norm())))
    running = torch.zeros(2)
    for _ in range(3):
        optimizer.zero_grad()
        for _ in range(2):
            x = torch.randn(5, 2, 9)
            y = x.mean((1, 2))
            label = torch.randint(0, 3, (5,))
            loss, parts = model.loss(x, y, label)
            loss = loss / 2
            loss.backward()
            running = 0.9 * running + 0.1 * parts
        optimizer.step()
    return {"running": running, **dict(model.named_parameters())}
